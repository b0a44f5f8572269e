"""Measure whether the 2 kB of `--format agent` answer common questions; tests/test_digest_answers.py asserts it.

The answers are known from the construction of the sample traces (sample_traces/make_samples.py), and from their bytes,
which are read here without this package. Each question is answered by a rule, a regular expression over the digest.
This needs no language model, so a failure is due to the digest.

    python benchmarks/digest_answers.py
"""

import gzip
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
LAUNCH, LOADING, SYNCHRONIZATION, MEMORY, GRAPH, COMPUTE, COLLECTIVES, DEPENDENCY, TRAINING = (
    f"synthetic_{name}.json.gz"
    for name in (
        "overhead_launch", "overhead_data-loading", "overhead_synchronization", "memory-bandwidth",
        "memory-bandwidth_cuda-graph", "compute", "communication_collectives", "communication_dependency", "training",
    )
)  # fmt: skip
CPU = "cpu_mlp.json.gz"
NAMES = (LAUNCH, LOADING, SYNCHRONIZATION, MEMORY, GRAPH, COMPUTE, COLLECTIVES, DEPENDENCY, TRAINING, CPU)

_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
_TIME = r"([\d.]+) (ns|us|ms|s)\b"


@dataclass(frozen=True)
class Question:
    """Hold a question, the rule that reads its answer from a digest, and the correct answers by sample.

    A number must be within ``tolerance``, a text equal; samples without an answer are not asked.
    """

    text: str
    rule: Callable[[str], object]
    answers: Mapping[str, object]
    tolerance: float = 0.0


def line(pattern: str) -> Callable[[str], object]:
    """Return the first group of a pattern that begins at a line's start; None where it does not match."""

    def rule(digest: str) -> object:
        match = re.search(rf"^{pattern}", digest, re.MULTILINE)
        return match[1] if match else None

    return rule


def time(pattern: str) -> Callable[[str], object]:
    """Return the time that follows a pattern, ns."""

    def rule(digest: str) -> object:
        match = re.search(rf"^{pattern}{_TIME}", digest, re.MULTILINE)
        return float(match[1]) * _UNITS[match[2]] if match else None

    return rule


def share(label: str) -> Callable[[str], object]:
    """Return the share of a part in the window, percent."""

    def rule(digest: str) -> object:
        match = re.search(rf"^window .*\b{label} <?([\d.]+) %", digest, re.MULTILINE)
        return float(match[1]) if match else None

    return rule


def events(name: str) -> list[dict[str, Any]]:
    """Return the complete events of a sample."""
    document = json.loads(gzip.decompress((SAMPLES / name).read_bytes()))
    return [event for event in document["traceEvents"] if event.get("ph") == "X"]


def kernel_ns(name: str) -> dict[str, float]:
    """Return the time by kernel name, for the judged device (the first) only."""
    sums: dict[str, float] = {}
    for event in events(name):
        if event.get("cat") == "kernel":
            sums[event["name"]] = sums.get(event["name"], 0) + 1e3 * event["dur"]
    return sums


def step_ns(name: str) -> float:
    """Return the time of a step: that of the slower side, host or device.

    The host's time is the median from one mark to the next; the device's is the time from its first kernel to its last,
    divided by the number of steps.
    """
    rows = events(name)
    kernels = [event for event in rows if event.get("cat") == "kernel"]
    marks = sorted(
        {
            event["ts"]
            for event in rows
            if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
        }
    )
    span = max(event["ts"] + event["dur"] for event in kernels) - min(event["ts"] for event in kernels)
    host = statistics.median(after - before for before, after in pairwise(marks[1:]))
    return 1e3 * max(host, span / len(marks))


def of_all(function: Callable[[str], object], names: tuple[str, ...]) -> dict[str, object]:
    """Return the answer of a function for each sample."""
    return {name: function(name) for name in names}


JUDGED = tuple(name for name in NAMES if name != CPU)
STEADY = (LAUNCH, LOADING, SYNCHRONIZATION, MEMORY, COMPUTE, COLLECTIVES, TRAINING)
QUESTIONS = (
    Question(
        "What limits the program?",
        line(r"verdict  (Overhead|Memory-bandwidth|Compute|Communication)-bound"),
        {**dict.fromkeys((LAUNCH, LOADING, SYNCHRONIZATION), "Overhead"), MEMORY: "Memory-bandwidth", GRAPH: "Memory-bandwidth",
         COMPUTE: "Compute", TRAINING: "Compute", COLLECTIVES: "Communication", DEPENDENCY: "Communication"},
    ),
    Question(
        "Why?",
        line(r"verdict  [\w-]+: ([a-z -]+) \("),
        {LAUNCH: "launch", LOADING: "data loading", SYNCHRONIZATION: "synchronization", COLLECTIVES: "collectives",
         DEPENDENCY: "device waits"},
    ),
    Question("Can it be judged at all?", lambda digest: "No verdict" not in digest, dict.fromkeys((*JUDGED, CPU), True)),
    Question("May one act on it at once?", line(r"verdict .*\((high|medium|low) confidence\)"), {LOADING: "high", COMPUTE: "high", GRAPH: "medium"}),
    Question(
        "What should be changed first?",
        line(r"advice:([\w-]+) "),
        {LAUNCH: "cuda-graphs", LOADING: "data-loading", SYNCHRONIZATION: "synchronization", MEMORY: "fusion",
         COLLECTIVES: "overlap", DEPENDENCY: "dependencies"},
    ),
    Question("With which code?", line(r"  code: ([\w.]+)"), {LAUNCH: "model", LOADING: "DataLoader", MEMORY: "torch.compile"}),
    Question("Where in the program?", line(r"  at .*\((train\.py:\d+)\)"), {LAUNCH: "train.py:31"}),
    Question("Which GPU is it?", line(r"device  \S+, ([^;\n]+)"), dict.fromkeys(JUDGED, "NVIDIA A100-SXM4-80GB")),
    Question("How long does a step take?", time(r"device .*; a step takes "), of_all(step_ns, STEADY), 0.1),
    Question("Which steps does it speak of?", line(r"window  .*?, (\d+) steady steps"), dict.fromkeys(STEADY, "6")),
    Question(
        "Which kernel takes most time, and how long?",
        time(r"kernel:[0-9a-f]+  "),
        of_all(lambda name: max(kernel_ns(name).values()), (LAUNCH, MEMORY, COMPUTE, COLLECTIVES)),
        0.02,
    ),
    Question("How much of the time is the loader waited for?", share("Data loading"), {LOADING: 60.0}, 0.05),
    Question("How much do collectives take?", share("Communication"), {COLLECTIVES: 55.0}, 0.05),
    Question("What does the change bring at most?", time(r"advice:[\w-]+  .*saves at most "), {LOADING: 8.2e6}, 0.05),
    Question(
        "What is the step with the change?",
        lambda digest: bool(re.search(r"^advice:.*estimate: .* a step, .* less \(.* to .*\)", digest, re.MULTILINE)),
        dict.fromkeys((LAUNCH, LOADING, SYNCHRONIZATION), True),
    ),
    Question("Which gap is the longest?", time(r"gap:\d+  "), {LOADING: 9.37e6}, 0.1),
    Question("Which operator takes most CPU time?", line(r"operator  (\S+):"), {CPU: "aten::mm"}),
    Question("How does one ask for more?", line(r"more: (analyze explain) "), dict.fromkeys(NAMES, "analyze explain")),
)  # fmt: skip


def is_right(question: Question, name: str, digest: str) -> bool:
    """Return whether the rule reads the known answer in the sample's digest."""
    known, answer = question.answers[name], question.rule(digest)
    if isinstance(known, float) and isinstance(answer, float):
        return abs(answer - known) <= question.tolerance * known
    return answer == known


def wrong(name: str, digest: str) -> list[str]:
    """Return the questions about a sample that its digest does not answer, each with the wrong answer."""
    asked = [question for question in QUESTIONS if name in question.answers]
    return [
        f"{question.text} {question.rule(digest)!r}, not {question.answers[name]!r}"
        for question in asked
        if not is_right(question, name, digest)
    ]


def main() -> None:
    """Print the number of questions that each sample's digest answers, and the unanswered ones."""
    from trace_analyzer import analyze

    print("| trace | bytes | questions | answered |\n|---|---|---|---|")
    failures = []
    for name in NAMES:
        digest = analyze(SAMPLES / name).to_agent_text()
        asked = sum(name in question.answers for question in QUESTIONS)
        failed = wrong(name, digest)
        failures += [f"{name}: {failure}" for failure in failed]
        print(f"| {name} | {len(digest.encode()):,} | {asked} | {asked - len(failed)} |")
    print("\n".join(["", *failures]), file=sys.stderr)


if __name__ == "__main__":
    main()
