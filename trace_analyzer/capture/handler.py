"""Turn each recorded cycle into a trace, a report and one line of text: ``on_trace_ready=trace_handler(...)``."""

import glob
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trace_analyzer import errors, units
from trace_analyzer.capture import facts

TIME_LIMIT_S = 300.0
"""Half of the ten minutes after which other ranks, which wait in a collective, time out."""

_POLL_S = 0.2
_LEAST_S = 60.0
"""Least time for judging the job, even if the ranks used the whole limit."""
_PACKAGE_HOME = str(Path(__file__).resolve().parents[2])


def trace_handler(
    folder: str | Path,
    *,
    report: bool = True,
    name: str = "trace",
    time_limit_s: float = TIME_LIMIT_S,
    job: bool = False,
    **options: Any,
) -> Callable[[facts.FinishedProfile], None]:
    """Return a callback for ``torch.profiler.profile(on_trace_ready=...)``.

    At the end of each recorded cycle, it writes ``<name>.step<N>.json.gz`` into ``folder``; N is the profiler's count
    of steps. With ``report``, it also analyses the trace, writes the reports ``<name>.step<N>.report.html`` and
    ``.report.json`` next to it, and prints the verdict in one line on standard error. A process of a job with several
    ranks adds ``.rank<R>`` to the names, and writes its input for ``analyze ranks``,
    ``<name>.rank<R>.step<N>.rank.gz``. Existing files are never overwritten: the names get a number.

    With ``job``, rank 0 then waits for the summaries of the other ranks in the same folder, and prints in one more line
    which rank of the job is late, and why; after ``time_limit_s``, it judges the summaries that exist.

    Of ``torch.profiler.schedule`` with ``wait``, the steps before each recording are timed (``measured_step_ms`` of the trace's header), for
    what recording costs: the last 10 at most, from the fourth step on, if there are 3 or more; with CUDA, before the
    first recording of the process only, which leaves CUPTI attached.

    Failures are warnings, never exceptions: training continues, and the trace is kept. The analysis runs in a process
    of its own, which keeps its memory and threads out of the trainer, and is killed after ``time_limit_s``. ``options``
    are those of `trace_analyzer.analyze` that the command also has: ``device``, ``step``, ``gpu``, ``peak_gbps``,
    ``peak_tflops`` (a mapping).

    Raises ``UsageError`` immediately for an unknown option.
    """
    flags = _flags(options)
    unrecorded = facts.UnrecordedSteps()
    if "torch" in sys.modules:
        facts.time_unrecorded_steps()

    def on_trace_ready(profile: facts.FinishedProfile) -> None:
        try:
            rank, step = facts.rank(), getattr(profile, "step_num", 0)
            parts = [name, *([] if rank is None else [f"rank{rank}"]), *([f"step{step}"] if step else [])]
            stem = _free_stem(Path(folder), ".".join(parts))
            trace = facts.export(
                profile, stem.with_name(f"{stem.name}.json.gz"), facts.settings(_level(profile), unrecorded.mean_ms)
            )
        except Exception as error:
            _warn(f"no trace was written into {folder}: {error}")
            return
        if report:
            until = time.monotonic() + time_limit_s
            _report(trace, stem, flags, time_limit_s)
            if job and facts.rank() == 0:
                _judge_job(stem, until)

    on_trace_ready.unrecorded = unrecorded  # type: ignore[attr-defined]
    return on_trace_ready


def _flags(options: Mapping[str, Any]) -> list[str]:
    known = ("device", "step", "gpu", "peak_gbps", "peak_tflops")
    if unknown := sorted(set(options) - set(known)):
        raise errors.UsageError(f"trace_handler has no option {', '.join(unknown)}: choose from {', '.join(known)}")
    peaks = [f"--peak-tflops={dtype}={peak}" for dtype, peak in (options.get("peak_tflops") or {}).items()]
    others = {key: value for key, value in options.items() if key != "peak_tflops" and value is not None}
    return [*peaks, *(f"--{key.replace('_', '-')}={value}" for key, value in others.items())]


def _free_stem(folder: Path, stem: str) -> Path:
    """Return the stem, with a number when the folder already has such a trace."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while folder.joinpath(f"{(taken := stem if number == 1 else f'{stem}-{number}')}.json.gz").exists():
        number += 1
    return folder / taken


def _level(profile: facts.FinishedProfile) -> str:
    """Return the level of `session.profile` that is closest to the profiler's options."""
    if getattr(profile, "with_stack", False):
        return "full"
    return "standard" if getattr(profile, "record_shapes", False) else "light"


def _report(trace: Path, stem: Path, flags: list[str], time_limit_s: float) -> None:
    """Analyse the trace in a process of its own and print the verdict; warn on failure."""
    html, document = (stem.with_name(f"{stem.name}.report.{kind}") for kind in ("html", "json"))
    words = ["report", str(trace), "--report", str(html), "--force", "--output", str(document), *flags]
    if facts.rank() is not None:
        words += ["--rank-summary", str(stem.with_name(f"{stem.name}.rank.gz"))]
    try:
        done = _run(words, time_limit_s)
        if done.returncode:
            last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            _warn(f"{trace} was kept, but not analysed: {units.visible(last)}")
            return
        verdict = json.loads(document.read_text(encoding="utf-8"))["verdict"]
    except Exception as error:
        _warn(f"{trace} was kept, but not analysed: {error}")
        return
    print(f"trace_analyzer: {verdict_line(verdict)} ({html})", file=sys.stderr, flush=True)


def _judge_job(stem: Path, until: float) -> None:
    """Wait for all ranks' summaries, judge the job in a separate process, and print its sentence; warn on failure."""
    pattern = f"{glob.escape(stem.name).replace('.rank0', '.rank*', 1)}.rank.gz"
    while len(list(stem.parent.glob(pattern))) < facts.world_size() and time.monotonic() < until:
        time.sleep(_POLL_S)
    words = ["ranks", str(Path(glob.escape(str(stem.parent)), pattern)), "--workers=1"]
    try:
        sentence = json.loads(_run(words, max(_LEAST_S, until - time.monotonic())).stdout)["job"]["sentence"]
    except Exception as error:
        _warn(f"the job of {stem.parent} was not judged: {error}")
        return
    print(f"trace_analyzer: job: {units.visible(sentence)}", file=sys.stderr, flush=True)


def _run(words: list[str], time_limit_s: float) -> "subprocess.CompletedProcess[str]":
    """Run the command with JSON output; it gets this rank's share of the machine's processors."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = max(1, (os.cpu_count() or 1) // max(1, int(ranks) if ranks.isdecimal() else 1))
    # -P, and the package at the end of the path: the trainer's folder must not shadow modules of the analysis.
    code = f"import sys; sys.path.append({_PACKAGE_HOME!r}); from trace_analyzer.cli import run; run()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words, "--format=json"],
        env={"POLARS_MAX_THREADS": str(share), **os.environ}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=time_limit_s, check=False,
    )  # fmt: skip


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """Format a verdict of the JSON report as one line."""
    if verdict["regime"] is None:
        status = verdict["status"]
        what = status if status == "cpu-run" else f"no verdict ({status})"
        return units.visible(f"{what}: {verdict['headline']}")
    cause = f" by {verdict['cause']}" if verdict["cause"] else ""
    return units.visible(f"{verdict['regime']}{cause}, {verdict['confidence']} confidence: {verdict['headline']}")


def _warn(message: str) -> None:
    """Warn, even where warnings are turned into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"trace_analyzer: {message}", RuntimeWarning, stacklevel=2)
