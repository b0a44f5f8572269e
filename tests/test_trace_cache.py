"""Test the cache: the same trace comes back; damage, concurrent writers, a full or unusable folder are no failure."""

import dataclasses
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from click.testing import CliRunner

from trace_analyzer import files, ingest, plugins, trace_cache
from trace_analyzer.cli import main
from trace_analyzer.errors import InputTooLarge
from trace_analyzer.ingest import Trace, load
from trace_analyzer.notes import CHANGED, Note
from trace_analyzer.pipeline import report_of
from trace_analyzer.trace_cache import LIMIT, load_cached
from trace_analyzer.user_folders import cache_folder

SAMPLES = sorted((Path(__file__).parents[1] / "sample_traces").glob("*.json.gz"))
SAMPLE = SAMPLES[0]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def equal(one: Trace, other: Trace) -> bool:
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if not (a.equals(b) and a.schema == b.schema if isinstance(a, pl.DataFrame) else a == b):
            return False
    return True


def entries() -> list[Path]:
    return sorted(cache_folder().iterdir()) if cache_folder().exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_same_trace_comes_back_without_the_file_being_read(path: Path) -> None:
    first = load_cached(path)
    with patch.object(ingest, "load", side_effect=AssertionError("the file was read again")):
        again = load_cached(path)
    assert equal(first, again)
    assert report_of(again).to_json() == report_of(load(path)).to_json()


def test_the_key_is_the_content(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json.gz"
    shutil.copy(SAMPLE, copy)
    load_cached(SAMPLE)
    assert load_cached(copy).path == str(copy)
    assert len(entries()) == 1
    shutil.copy(SAMPLES[1], copy)
    assert equal(load_cached(copy), dataclasses.replace(load(SAMPLES[1]), path=str(copy)))
    assert len(entries()) == 2


def test_the_key_is_all_bytes_the_version_the_reading_code_and_plug_ins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_cache, "_CHUNK", 100)
    path = tmp_path / "trace.json"
    path.write_text("a" * 1000)
    keys = {trace_cache._key(path, 1)}
    path.write_text("a" * 999 + "b")
    keys.add(trace_cache._key(path, 1))
    for owner, name in ((trace_cache, "tool_version"), (trace_cache, "_reader"), (plugins, "fingerprint")):
        monkeypatch.setattr(owner, name, lambda: "another")
        keys.add(trace_cache._key(path, 1))
    monkeypatch.setattr(trace_cache, "_FORMAT", 0)
    keys.add(trace_cache._key(path, 1))
    assert len(keys) == 6


def test_limits_still_hold() -> None:
    load_cached(SAMPLE)
    with pytest.raises(InputTooLarge):
        load_cached(SAMPLE, max_bytes=1000)


@pytest.mark.sampled
@pytest.mark.parametrize("file", ["trace.json", "host_events.parquet", "device_events.parquet"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damaged_entries_are_ignored(file: str, damage: str) -> None:
    load_cached(SAMPLE)
    path = entries()[0] / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flipped" else content[: len(content) // 2])
    assert equal(load_cached(SAMPLE), load(SAMPLE))
    with patch.object(ingest, "load", side_effect=AssertionError("the entry was not made again")):
        load_cached(SAMPLE)


def test_an_entry_that_can_be_read_but_is_another_is_ignored() -> None:
    """Check that what was written over by a whole file, or edited by hand, is damaged as well."""
    expected = load_cached(SAMPLE)
    for file in ("host_events.parquet", "trace.json"):
        path = entries()[0] / file
        if file == "trace.json":
            text = path.read_text()
            path.write_text(text.replace(f'"event_count": {expected.event_count}', '"event_count": 7'))
            assert path.read_text() != text
        else:
            expected.host_events.head(1).write_parquet(path)
        assert equal(load_cached(SAMPLE), expected)


def test_what_a_writer_left_half_done_is_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def failing(frame: pl.DataFrame, file: Path, **options: object) -> None:
        assert entries() == [path for path in entries() if path.name.endswith(".tmp")]
        written.append(file)
        if len(written) == 2:
            raise OSError("the disk is full")
        Path(file).write_bytes(b"")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", failing)
    assert equal(load_cached(SAMPLE), load(SAMPLE))
    assert len(written) == 2
    assert entries() == []


def test_writers_beside_each_other() -> None:
    with ThreadPoolExecutor(4) as pool:
        traces = list(pool.map(lambda _: load_cached(SAMPLE), range(8)))
    expected = load(SAMPLE)
    assert all(equal(trace, expected) for trace in traces)
    assert [path.name.endswith(".tmp") for path in entries()] == [False]


@pytest.mark.slow
def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in SAMPLES:
        load_cached(path)
    sizes = [sum(file.stat().st_size for file in entry.iterdir()) for entry in entries()]
    assert len(sizes) == len(SAMPLES)
    monkeypatch.setenv(LIMIT, str(sum(sizes) / 2e6))
    shutil.rmtree(entries()[0])
    for path in SAMPLES:
        load_cached(path)
    assert sum(sum(file.stat().st_size for file in entry.iterdir()) for entry in entries()) <= sum(sizes) / 2


def test_what_was_unused_for_longest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "entries"
    for age, name in enumerate(("newest", "middle", "oldest")):
        (folder / name).mkdir(parents=True)
        (folder / name / "frame").write_bytes(b"a" * 1000)
        os.utime(folder / name, (10**9 - age, 10**9 - age))
    abandoned = folder / f".analyze-{files._machine()}-{2**31 - 1}-0123456789ab.tmp"
    at_work = folder / f".analyze-{files._machine()}-{os.getpid()}-0123456789ab.tmp"
    for writer in (abandoned, at_work):
        writer.mkdir()
        (writer / "frame").write_bytes(b"a" * 9000)
    monkeypatch.setenv(LIMIT, "0.0025")
    trace_cache._evict(folder)
    assert {path.name for path in folder.iterdir()} == {"newest", "middle", at_work.name}


def test_use_is_noted_and_entries_are_private() -> None:
    load_cached(SAMPLE)
    (entry,) = entries()
    os.utime(entry, (10**9, 10**9))
    load_cached(SAMPLE)
    assert entry.stat().st_mtime > 10**9
    assert not cache_folder().stat().st_mode & 0o077
    assert not entry.stat().st_mode & 0o077


def test_a_file_that_changed_while_it_was_read_is_not_kept() -> None:
    trace = load(SAMPLE)
    changed = dataclasses.replace(trace, notes=(*trace.notes, Note(CHANGED, "warning", "it changed")))
    with patch.object(ingest, "load", return_value=changed):
        load_cached(SAMPLE)
    assert not entries()


@pytest.mark.parametrize(
    "verb",
    [
        ("compare", str(SAMPLE), str(SAMPLE)),
        ("explain", str(SAMPLE)),
        pytest.param(("scaling", str(SAMPLE), str(SAMPLE)), marks=pytest.mark.slow),
        pytest.param(("whatif", str(SAMPLE)), marks=pytest.mark.slow),
        pytest.param(("export", str(SAMPLE), "--perfetto", "OUT"), marks=pytest.mark.slow),
        pytest.param(("baseline", "save", str(SAMPLE), "OUT"), marks=pytest.mark.slow),
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_keeps_what_it_read_unless_asked_not_to(verb: tuple[str, ...], tmp_path: Path) -> None:
    for number, option in enumerate(("--no-cache", "")):
        words = [str(tmp_path / f"{number}.json") if word == "OUT" else word for word in verb]
        run = CliRunner().invoke(main, [*words, *filter(None, [option])])
        assert run.exit_code in (0, 2, 3), run.stderr
        assert len(entries()) == number


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert equal(load_cached(SAMPLE), load(SAMPLE))


@pytest.mark.slow
def test_no_cache() -> None:
    run = CliRunner().invoke(main, [str(SAMPLE), "--no-report", "--no-cache"])
    assert run.exit_code == 0
    assert not entries()
    assert CliRunner().invoke(main, [str(SAMPLE), "--no-report"]).stdout == run.stdout
    assert len(entries()) == 1
