"""Keep a loop of changes in a folder: recordings, prediction, change, the next recordings, and what they show, turn by turn."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer.compare import decomposition, statistics
from trace_analyzer.compare.sides import recordings
from trace_analyzer.errors import InputError, UsageError, did_you_mean
from trace_analyzer.files import is_special, write_text
from trace_analyzer.installation import tool_version
from trace_analyzer.json_types import Limits, damage, first_line, read_as
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report
from trace_analyzer.results import Result

SCHEMA_VERSION = 1
STATE, HISTORY = "loop.json", "history.md"
Pair = tuple[float, float]


class Turn(Struct, frozen=True):
    """One turn: a change with its prediction, and what came. Files are in the folder of the loop."""

    number: Annotated[int, "Number of the turn, from 1."]
    before: Annotated[tuple[str, ...], "Recordings before the change."] = ()
    advice: Annotated[str | None, "Id of the advice that the turn follows; null for none."] = None
    title: Annotated[str, "What that advice changes."] = ""
    saves_ratio: Annotated[float | None, "Share of the step that a replay predicts to be saved."] = None
    interval_ratio: Annotated[Pair | None, "Interval of that prediction."] = None
    at_most_ratio: Annotated[float | None, "Share of the step that the advice saves at most."] = None
    note: Annotated[str | None, "The change in words."] = None
    patch: Annotated[str | None, "The change as a file."] = None
    after: Annotated[tuple[str, ...], "Recordings after the change."] = ()
    decision: Annotated[
        Literal["keep", "revert", "open"], "What to do with the change; open where recordings do not tell."
    ] = "open"
    why: Annotated[str, "The reason."] = ""
    steps_ns: Annotated[Pair | None, "Step before and after the change, ns."] = None
    interval_ns: Annotated[Pair | None, "95 % interval of the difference, ns; null where not known."] = None
    prediction_held: Annotated[bool | None, "Whether the saving is as predicted; null where that is not known."] = None

    @property
    def has_few_before(self) -> bool:
        """Return whether it is open, and no number of recordings after the change can decide it."""
        return self.decision == "open" and len(self.before) < statistics.LEAST_OBSERVATIONS


class Loop(Result, frozen=True):
    """The turns of a loop."""

    turns: Annotated[tuple[Turn, ...], "The turns, in order."] = ()
    schema_version: Annotated[Annotated[int, Limits(const=SCHEMA_VERSION)], "Version of this schema."] = SCHEMA_VERSION
    tool_version: Annotated[str, "Version of the program that wrote it."] = ""


def start(folder: Path, source: str | None, advice: str | None = None) -> Loop:
    """Begin a turn: keep recordings of the program as it is, and the prediction of an advice, the first that saves time.

    Without ``source`` (a trace, folder or pattern), these are the ones after the last change if it is kept, else before
    it. Like `apply` and `check`, it raises ``UsageError`` and ``InputError``.
    """
    turns = read(folder).turns if (folder / STATE).exists() else ()
    if source is not None:
        paths = recordings(source)
    elif not turns or turns[-1].decision == "open":
        raise UsageError("no decision that the turn could follow: name recordings, analyze loop start LOOP TRACE")
    else:
        paths = [folder / name for name in (turns[-1].after if turns[-1].decision == "keep" else turns[-1].before)]
    turn = _predicted(analyze(paths[0]), len(turns) + 1, advice)
    return _written(turns, replace(turn, before=_copied(paths, folder, turn.number, "before")), folder)


def apply(folder: Path, note: str | None, patch: str | None) -> Loop:
    """Keep the change of the open turn, in words, as a file, or both; the program's files are left alone."""
    *turns, turn = _open(folder)
    if note is None and patch is None:
        raise UsageError("name the change: --note TEXT or --patch FILE")
    if patch is not None and not Path(patch).is_file():
        raise UsageError(f"--patch {patch}: no such file")
    kept = turn.patch if patch is None else _copied([Path(patch)], folder, turn.number, "change")[0]
    return _written(turns, replace(turn, note=note or turn.note, patch=kept), folder)


def check(folder: Path, source: str) -> Loop:
    """Compare recordings after the change with those before, and decide; a turn that stays open can be checked again."""
    *turns, turn = _open(folder)
    if turn.note is None and turn.patch is None:
        raise UsageError(f"turn {turn.number} has no change yet: analyze loop apply LOOP --note TEXT")
    before, after = [folder / name for name in turn.before], recordings(source)
    compared = decomposition.compare(before, after)
    if compared.status == "ok":
        steps = compared.both[0].step_ns, compared.both[1].step_ns
        # Steps of one recording show only that recordings differ.
        decision, why = decide(steps, compared.significant if compared.are_recordings_units else None)
        if compared.input_changes or not compared.same_program:
            decision, why = "open", "the recordings are not known to do the same work"
        turn = replace(turn, steps_ns=steps, interval_ns=compared.interval_ns, decision=decision, why=why)
        turn = replace(turn, prediction_held=is_held(turn))
    else:
        turn = _timed(turn, (before, after), compared.reason)
    turn = replace(turn, after=_copied(after, folder, turn.number, "after"))
    write_text(folder / f"turn-{turn.number}" / "comparison.md", compared.to_markdown())
    return _written(turns, turn, folder)


def decide(steps: Pair, significant: bool | None) -> tuple[Literal["keep", "revert", "open"], str]:
    """Return the decision on the steps before and after a change, and its reason; ``significant`` is None for few recordings."""
    if significant is None:
        return "open", f"a decision needs {statistics.LEAST_OBSERVATIONS} recordings or more of each side"
    if not significant:
        return "open", "the difference may be chance; more recordings show smaller ones"
    word = "shorter" if steps[1] < steps[0] else "longer"
    return "keep" if word == "shorter" else "revert", f"the step is {word} by more than chance"


def is_held(turn: Turn) -> bool | None:
    """Return whether the saving of recorded steps is as predicted; None for an open turn, or without a prediction."""
    if turn.decision == "open" or turn.steps_ns is None or turn.at_most_ratio is None:
        return None
    low, high = turn.interval_ratio or (float("-inf"), turn.at_most_ratio + statistics.FLOOR_RATIO)
    return low <= 1 - turn.steps_ns[1] / turn.steps_ns[0] <= high


def read(folder: Path) -> Loop:
    """Read the loop in a folder. Raises ``UsageError`` where there is none, and ``InputError`` for a damaged one."""
    path = folder / STATE
    try:
        loop = read_as(Loop, json.loads(path.read_bytes()))
        loop.to_markdown()  # raises for pairs that are none
        return loop
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; analyze loop start LOOP TRACE begins a loop") from None
    except damage() as error:
        raise InputError(f"{path}: a damaged loop, or one of another version ({first_line(error)})") from None


def _open(folder: Path) -> tuple[Turn, ...]:
    turns = read(folder).turns
    if not turns or turns[-1].decision != "open":
        raise UsageError("no turn is open: analyze loop start LOOP begins one")
    return turns


def _timed(turn: Turn, sides: Sequence[Sequence[Path]], reason: str | None) -> Turn:
    """Return a turn decided by the steps that recordings by `record` and `profile` time without the profiler."""
    settings = [[analyze(path).trace.settings for path in side] for side in sides]
    before, after = ([1e6 * ((item and item.measured_step_ms) or 0.0) for item in side] for side in settings)
    if not all((*before, *after)):
        why = f"{reason}; nor does each have a step that was timed without the profiler, as `analyze record` and `ta.profile` do"
        return replace(turn, why=why, steps_ns=None, interval_ns=None)
    steps = fmean(before), fmean(after)
    test = statistics.difference(before, after, floor=statistics.floor_of(*steps), independent=(True, True))
    decision, why = decide(steps, test.significant)
    turn = replace(turn, decision=decision, why=f"{why} (steps that were timed without the profiler)")
    return replace(turn, steps_ns=steps, interval_ns=test.interval)


def _predicted(report: Report, number: int, advice: str | None) -> Turn:
    """Return a turn with the prediction of an advice: of none, where the report has none that saves time."""
    known = {item.id: item for item in reversed(report.advice)}
    useful = (item.id for item in report.advice if item.saving.at_most_ratio > 0)
    chosen = advice.removeprefix("advice:") if advice else next(useful, None)
    if chosen is None:
        return Turn(number)
    if chosen not in known:
        raise UsageError(f"--advice {chosen}: the report does not give it{did_you_mean(chosen, known)}")
    item, then = known[chosen], known[chosen].predicted
    turn = Turn(number, advice=chosen, title=item.title, at_most_ratio=item.saving.at_most_ratio or None)
    if then is None or not then.is_known:
        return turn
    saves, *ends = (1 - ns / then.now_ns for ns in (then.step_ns, then.high_ns, then.low_ns))
    return replace(turn, saves_ratio=saves, interval_ratio=(ends[0], ends[1]))


def _copied(paths: Sequence[Path], folder: Path, number: int, what: str) -> tuple[str, ...]:
    """Copy files into the folder of a turn; return their names below that of the loop."""
    for path in filter(is_special, paths):
        raise UsageError(f"{path}: a loop keeps its recordings, and a pipe can be read once; name a file")
    target = Path(f"turn-{number}", what)
    (folder / target).mkdir(parents=True, exist_ok=True)
    names = [target / f"{place}-{path.name}" for place, path in enumerate(paths, 1)]
    for path, name in zip(paths, names, strict=True):
        shutil.copyfile(path, folder / name)
    return tuple(map(str, names))


def _written(turns: Sequence[Turn], turn: Turn, folder: Path) -> Loop:
    loop = Loop((*turns, turn), tool_version=tool_version())
    write_text(folder / STATE, loop.to_json())
    write_text(folder / HISTORY, loop.to_markdown())
    return loop
