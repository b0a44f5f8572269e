"""Describe a loop of changes as a document: a row for each turn, prediction against what came, and the next step."""

from trace_analyzer.compare.loop import Loop, Turn
from trace_analyzer.documents import Chapter, Document, Notes, PlainTable
from trace_analyzer.units import counted, duration, percent

_HELD = {True: "yes", False: "no", None: "–"}
_HEADINGS = ("Turn", "Change", "Before", "Predicted", "After", "Came", "Held", "Decision")


def document(result: Loop) -> Document:
    """Return the document: how many changes were kept, the turns, and what is next."""
    decisions: list[str] = [turn.decision for turn in result.turns]
    kept, reverted, left = map(decisions.count, ("keep", "revert", "open"))
    headline = f"{counted(len(result.turns), 'turn')}: {kept} kept, {reverted} reverted, {left} open."
    rows = PlainTable(_HEADINGS, "rlrlrlll", [_row(turn) for turn in result.turns])
    turns = Chapter("turns", "Prediction against what came", [rows])
    return Document(
        "loop", headline, (turns, Chapter("last", "Last turn", [Notes(_last(turn)) for turn in result.turns[-1:]]))
    )


def _row(turn: Turn) -> tuple[str, ...]:
    predicted, came, before, after = "–", "–", *map(duration, turn.steps_ns or (None, None))
    if turn.saves_ratio is not None:
        predicted = _saved(turn.saves_ratio, turn.interval_ratio)
    elif turn.at_most_ratio is not None:
        predicted = f"at most {_saved(turn.at_most_ratio)}"
    if turn.steps_ns is not None:
        now, then = turn.steps_ns
        came = _saved(
            1 - then / now, turn.interval_ns and (-turn.interval_ns[1] / now, min(-turn.interval_ns[0] / now, 1.0))
        )
    change = turn.note or turn.patch or turn.title or "–"
    return str(turn.number), change, before, predicted, after, came, _HELD[turn.prediction_held], turn.decision


def _saved(ratio: float, interval: tuple[float, float] | None = None) -> str:
    """Return the change of a step, and its interval: ``-60 % (-57 % to -61 %)`` for one that saves 60 %."""
    text = f"{'-' if ratio > 0 else '+' if ratio < 0 else ''}{percent(abs(ratio))}"
    return text if interval is None else f"{text} ({_saved(interval[0])} to {_saved(interval[1])})"


def _last(turn: Turn) -> list[str]:
    advice = f"Advice {turn.advice}: {turn.title}." if turn.advice else "The report has no advice that saves time."
    if turn.after:
        return [advice, f"Decision: {turn.decision}: {turn.why}."]
    if turn.note or turn.patch:
        return [advice, "Next: record the changed program, then analyze loop check LOOP TRACE."]
    return [advice, "Next: change the program, then analyze loop apply LOOP --note TEXT."]
