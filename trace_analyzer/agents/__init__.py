"""Serve language models: a guide to the commands, and the verbs of the command as tools of the Model Context Protocol."""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trace_analyzer.errors import UsageError
from trace_analyzer.units import size, visible

if TYPE_CHECKING:
    from trace_analyzer.report import Report


MOST_CHARACTERS = 6_000
"""Longest answer; a cut answer names where to find the rest."""
_KEPT = 4
_MOST_TRACES = 50
_SNAPSHOTS = (".pickle", ".pickle.gz", ".pickle.zst")
_LISTED = (".json", ".json.gz", ".json.zst", ".rank.gz", ".sqlite", ".sqlite.gz", *_SNAPSHOTS)
_OWN_FILES = (".report.json", ".calibration.json")


class Tools:
    """The tools, which answer in text about traces inside a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._report = lru_cache(_KEPT)(_report)

    def all(self) -> tuple[Callable[..., str], ...]:
        """Return the tools."""
        return (
            self.traces, self.analyze, self.explain, self.whatif, self.compare, self.scaling, self.ranks, self.memory,
            self.loop,
        )  # fmt: skip

    def traces(self, folder: str = ".") -> str:
        """List the traces and memory snapshots in a folder and those below it, the newest first.

        Args:
            folder: path of the folder, relative to the server's root.
        """
        top = self.inside(folder)
        if not top.is_dir():
            raise UsageError(f"{visible(folder)}: no such folder in the folder that this server reads")
        found = sorted(((path.stat().st_mtime, path) for path in _listed(top)), reverse=True)
        lines = [
            f"{visible(str(path.relative_to(self.root)))}  {size(path.stat().st_size)}, {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"
            for time, path in found[:_MOST_TRACES]
        ]
        if not lines:
            return answer("no trace here", "record", {"command": ["python", "train.py"]})
        if len(found) > len(lines):
            lines.append(f"and {len(found) - len(lines)} older")
        newest = found[0][1]
        given = str(newest.relative_to(self.root))
        if newest.name.endswith(".rank.gz"):
            return answer("\n".join(lines), "ranks", {"source": str(newest.parent.relative_to(self.root))})
        snapshot = newest.name.endswith(_SNAPSHOTS)
        return answer("\n".join(lines), *(("memory", {"source": given}) if snapshot else ("analyze", {"trace": given})))

    def analyze(self, trace: str) -> str:
        """Say what limits a PyTorch Profiler trace, the best advice, and the ids that `explain` takes.

        Args:
            trace: path of the trace (.json, .json.gz), relative to the server's root.
        """
        from trace_analyzer.explain.agent import agent_text

        report = self._of(trace)
        best = f"advice:{report.advice[0].id}" if report.advice else "verdict"
        text = agent_text(report, more=f"explain {json.dumps({'trace': trace, 'id': 'ID'})}")
        return answer(text, "explain", {"trace": trace, "id": best})

    def explain(self, trace: str, id: str = "verdict") -> str:  # noqa: A002 (an id is what it takes)
        """Explain one item of a trace's report in full, with its evidence.

        Args:
            trace: path of the trace, or of a memory snapshot, relative to the server's root.
            id: one from the answer of `analyze`: verdict, advice:ID, gap:N, kernel:HASH (or a part of its name), step:N, check:ID or memory:N (of a snapshot: its N-th line).
        """
        from msgspec.structs import replace

        from trace_analyzer.allocator.answer import is_snapshot, memory

        path = self._file(trace)
        explanation = (memory(path) if is_snapshot(path) else self._of(trace)).explain(id)
        text = replace(explanation, next="").summary()
        return answer(text, *called(explanation.next, trace)) if explanation.next else answer(text)

    def whatif(
        self,
        trace: str,
        no_sync: bool = False,
        pinned: bool = False,
        prefetch: int | Literal["auto"] | None = None,
        graphs: bool = False,
        fuse: bool = False,
        fuse_only: Literal["attention", "chain", "optimizer"] | None = None,
        tf32: bool = False,
        bf16: bool = False,
        overlap: bool = False,
        overlap_copies: bool = False,
        buckets: bool = False,
        batch: float | None = None,
        memory: str | None = None,
        warm: bool = False,
        warm_only: Literal["allocation", "compilation"] | None = None,
        speedup: dict[str, float] | None = None,
    ) -> str:
        """Estimate the step's time after changes, with an interval; without changes, what would help most.

        Args:
            trace: path of the trace, relative to the server's root.
            no_sync: remove waits for the device; only enqueue blocking copies.
            pinned: make copies of pageable memory pinned and asynchronous.
            prefetch: load data in so many workers; auto: as few as suffice.
            graphs: replay each steady step, but for its optimizers, as one CUDA graph.
            fuse: run each chain of table fusions as one kernel.
            fuse_only: like fuse, but only for this kind of chain.
            tf32: run FP32 matmuls and convolutions in TF32, at the roof.
            bf16: run FP32 work in bfloat16, at the roof.
            overlap: overlap all communication with computation, at best.
            overlap_copies: overlap all copies of pinned memory with computation, at best.
            buckets: send small messages that nothing awaits in between as one.
            batch: multiply the batch by this factor.
            memory: path of a memory snapshot of the same program, which tells whether this batch fits.
            warm: remove compilation, loading and allocation.
            warm_only: like warm, but only for this part.
            speedup: factor by bucket, operator, module, communication or cpu, such as {"matmul": 2}.
        """
        from trace_analyzer.allocator.answer import memory as recorded
        from trace_analyzer.explain.lookups import change_options
        from trace_analyzer.replay.whatif import changes_of, whatif as estimated

        for name, whole, part in (("fuse", fuse, fuse_only), ("warm", warm, warm_only)):
            if whole and part:
                raise UsageError(f"{name} and {name}_only exclude each other")
        changes = changes_of(
            no_sync=no_sync, pinned=pinned, prefetch=prefetch, graphs=graphs, fuse=fuse_only or fuse, tf32=tf32, bf16=bf16,
            overlap=overlap, overlap_copies=overlap_copies, buckets=buckets, batch=batch, warm=warm_only or warm, speedup=speedup,
        )  # fmt: skip
        if memory is not None and batch is None:
            raise UsageError("memory says whether a batch fits: name the batch too")
        snapshot = None if memory is None else recorded(self._file(memory))
        result = estimated(self._of(trace), changes, snapshot=snapshot)
        if result.status != "ok":
            return answer(f"no estimate: {result.reason}", "explain", {"trace": trace, "id": "verdict"})
        if not changes and result.helpful:
            best = result.helpful[0]
            words = change_options(best.name, best.options)
            return answer(result.summary(), *called(shlex.join(("analyze", "whatif", trace, *words)), trace))
        return answer(result.summary(), "compare", {"before": trace, "after": "the trace recorded after the change"})

    def compare(self, before: str, after: str) -> str:
        """Say what differs between two sides of a program, line by line, and whether that is more than chance.

        Args:
            before: a trace before the change, or a folder or pattern of several, relative to the server's root.
            after: the same after it.
        """
        from trace_analyzer.compare.decomposition import compare as compared
        from trace_analyzer.compare.sides import recordings

        sides = [self._inside_all(recordings(self._named(side))) for side in (before, after)]
        return answer(compared(*sides).summary(), "analyze", {"trace": self._given(sides[1][-1])})

    def scaling(self, traces: list[str]) -> str:
        """Find the overhead of a program from recordings at several batch sizes: whether a bigger batch pays.

        Args:
            traces: paths of two traces or more with shapes (record_shapes=True), relative to the server's root.
        """
        from trace_analyzer.compare.scaling import scaling as scaled

        result = scaled(*(self._file(trace) for trace in traces))
        return answer(result.summary(), "whatif", {"trace": traces[-1], "batch": 2})

    def ranks(self, source: str) -> str:
        """Find which rank of a job is late, how often, why, and what a fix can save.

        Args:
            source: folder or pattern of the traces, one a rank, relative to the server's root.
        """
        from trace_analyzer.ranks.files import files_of
        from trace_analyzer.ranks.job import analyze_ranks

        files = self._inside_all(map(Path, files_of([str(self._named(source))])))
        result = analyze_ranks(files)
        late = [item.rank for item in result.stragglers[:1]]
        path = next((Path(rank.path) for rank in result.ranks if rank.rank in late), files[0])
        return answer(result.summary(), "analyze", {"trace": self._given(path)})

    def memory(self, source: str, before: str | None = None, trace: str | None = None) -> str:
        """Say where device memory goes, why it ran out, and what would lower its peak.

        Args:
            source: a snapshot of torch.cuda.memory, or a trace recorded with profile_memory=True, relative to the server's root.
            before: an earlier one, to say what changed at the peak.
            trace: a trace of the same run as a snapshot, to say where in it the peak is.
        """
        from trace_analyzer.allocator.answer import memory as answered

        earlier, traced = (None if each is None else self._file(each) for each in (before, trace))
        result = answered(self._file(source), before=earlier, trace=traced)
        if not result.devices:
            return answer(result.summary(), "record", {"command": ["python", "train.py"], "level": "standard"})
        return answer(result.summary(), "memory", {"source": "the recording after a change", "before": source})

    def loop(
        self,
        folder: str,
        step: Literal["start", "apply", "check"],
        trace: str | None = None,
        advice: str | None = None,
        note: str | None = None,
        patch: str | None = None,
    ) -> str:
        """Keep a change in a folder: start predicts, apply keeps what was changed, check compares and decides.

        Args:
            folder: folder of the loop, relative to the server's root; start makes it.
            step: start a turn, keep the change of the open turn, or check what came of it.
            trace: recording before the change (start; by default what the last turn left) or after it (check); a folder or pattern of several, too.
            advice: with start, the id of the advice to follow; by default the first that saves time.
            note: with apply, the change in words.
            patch: with apply, path of the change as a file, of which the loop keeps a copy; no file of the program is changed.
        """
        from trace_analyzer.compare import loop as turns
        from trace_analyzer.compare.sides import recordings

        given = {"trace": trace, "advice": advice, "note": note, "patch": patch}
        taken = {"start": ("trace", "advice"), "apply": ("note", "patch"), "check": ("trace",)}[step]
        for name, value in given.items():
            if value is not None and name not in taken:
                raise UsageError(f"{step} takes no {name}: it takes {' and '.join(taken)}")
        if trace is not None:
            self._inside_all(recordings(self._named(trace)))
            given["trace"] = str(self._named(trace))
        elif step == "check":
            raise UsageError("check needs the trace after the change")
        if patch is not None:
            given["patch"] = str(self._file(patch))
        result = getattr(turns, step)(self.inside(folder), *(given[name] for name in taken))
        following = {
            "start": {"step": "apply", "note": "what was changed"},
            "apply": {"step": "check", "trace": "the trace recorded after the change"},
            "check": {"step": "check", "trace": "a pattern of more recordings after the change"},
        }[step]
        turn = result.turns[-1]
        if step == "check" and turn.has_few_before:
            following = {"step": "start", "trace": "a pattern of more recordings before the change"}
        elif turn.decision != "open":
            following = {"step": "start"}
        return answer(result.summary(), "loop", {"folder": folder, **following})

    def inside(self, name: str) -> Path:
        """Return the path of a name inside the root, without links. Raises ``UsageError`` for any other."""
        try:
            path = (self.root / name).resolve()
            path.exists()
        except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a NUL
            raise UsageError(
                f"{visible(name[:200])}: no path: too long, with a NUL, or links that lead in a circle"
            ) from None
        if not path.is_relative_to(self.root):
            raise UsageError(f"{visible(name)}: not inside the folder that this server may read")
        return path

    def _named(self, name: str) -> Path:
        """Return the path of a file, folder or pattern as it is written, if it is inside the root."""
        self.inside(name)
        return self.root / name

    def _inside_all(self, files: Iterable[Path]) -> list[Path]:
        """Return files, some of which may be links, if all of them are inside the root."""
        return [self._file(str(path)) for path in files]

    def _given(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def _file(self, name: str) -> Path:
        path = self.inside(name)
        if not path.is_file():
            raise UsageError(f"{visible(name)}: no such file in the folder that this server reads")
        return path

    def _of(self, trace: str) -> "Report":
        """Return the report on a trace inside the root; it is kept while the file does not change."""
        path = self._file(trace)
        facts = path.stat()
        return self._report(path, facts.st_mtime_ns, facts.st_size)


def answer(text: str, tool: str = "", arguments: Mapping[str, Any] | None = None) -> str:
    """Return a short answer that ends with the next call, if there is one."""
    text = text.rstrip("\n")
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}\n... cut; the command of the same name prints all of it"
    return f"{text}\nnext call: {tool} {json.dumps(arguments)}\n" if tool else f"{text}\n"


def called(command: str, trace: str) -> tuple[str, dict[str, Any]]:
    """Return the call that a command of `Explanation.next` is: an id to explain, options of what-if, or memory."""
    _, verb, _, *rest = shlex.split(command)
    if verb == "explain":
        return verb, {"trace": trace, "id": rest[0]}
    if verb == "memory":
        return verb, {"source": trace}
    options: dict[str, Any] = {}
    for word in rest:
        if word.startswith("--"):
            options[name := word[2:].replace("-", "_")] = True
        else:
            options[name] = int(word) if word.isdecimal() else word
    return verb, {"trace": trace, **options}


def _listed(top: Path) -> Iterator[Path]:
    """Yield the traces, summaries and snapshots below a folder; links and hidden folders are not followed."""
    for folder, below, names in os.walk(top):
        below[:] = [name for name in below if not name.startswith(".")]
        for path in (Path(folder, name) for name in names if name.endswith(_LISTED) and not name.endswith(_OWN_FILES)):
            if path.is_file() and not path.is_symlink():
                yield path


def _report(path: Path, modified_ns: int, size: int) -> "Report":
    """Return the report on a file; its time and size identify its version for the cache."""
    from trace_analyzer.pipeline import analyze

    return analyze(path)
