"""Show what the program says of traces from which something was taken, or in which something was changed.

    python benchmarks/changed_traces.py TRACE... [--changes stacks,shapes]

Each line holds the trace, the change, and status, regime, cause and confidence; ``-v`` adds headline, doubts, advice and checks.
Read it as an expert would: no line may say more than what is left of the trace supports. An exception ends the program.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

Event = dict[str, Any]
Document = dict[str, Any]

KERNELS = ("kernel", "Kernel")
ON_DEVICE = (*KERNELS, "gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
CALLS = ("cuda_runtime", "cuda_driver", "Runtime")


def category(event: Event) -> str:
    """Return the category of an event; empty for none."""
    return str(event.get("cat", ""))


def name(event: Event) -> str:
    """Return the name of an event; empty for none."""
    return str(event.get("name", ""))


def keep(is_kept: Callable[[Event], bool]) -> Callable[[Document], None]:
    """Return a change that keeps some events."""

    def change(document: Document) -> None:
        document["traceEvents"] = [event for event in document["traceEvents"] if is_kept(event)]

    return change


def edit(*categories: str, **values: Callable[[Any], Any]) -> Callable[[Document], None]:
    """Return a change of fields of the events of some categories; of all events where none is named."""

    def change(document: Document) -> None:
        for event in document["traceEvents"]:
            if not categories or category(event) in categories:
                event |= {key: make(event[key]) for key, make in values.items() if key in event}

    return change


def without_arguments(*starts: str) -> Callable[[Document], None]:
    """Return a change that drops arguments whose names start so."""
    return edit(args=lambda args: {k: v for k, v in args.items() if not k.startswith(starts)})


def rename_devices(document: Document) -> None:
    """Give the devices a name that no catalogue holds."""
    for properties in document.get("deviceProperties", []):
        properties["name"] = "NVIDIA X9000 Ultra"


def drop_header(document: Document) -> None:
    """Leave nothing beside the events."""
    events = document["traceEvents"]
    document.clear()
    document["traceEvents"] = events


def keep_a_fifth(document: Document) -> None:
    """Keep the spans that start in the middle fifth of the time."""
    spans = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    first, last = (pick(float(event["ts"]) for event in spans) for pick in (min, max))
    low, high = (first + share * (last - first) for share in (0.4, 0.6))
    keep(lambda event: event.get("ph") != "X" or low <= float(event["ts"]) < high)(document)


def drop_every_third_kernel(document: Document) -> None:
    """Drop one kernel in three."""
    dropped = {id(event) for event in [e for e in document["traceEvents"] if category(e) in KERNELS][::3]}
    keep(lambda event: id(event) not in dropped)(document)


CHANGES: dict[str, Callable[[Document], None]] = {
    "stacks": keep(lambda event: category(event) != "python_function"),
    "shapes": without_arguments("Input", "Concrete"),
    "types": without_arguments("Input type", "Input Types"),
    "steps": keep(lambda event: not name(event).startswith("ProfilerStep")),
    "device-name": rename_devices,
    "header": drop_header,
    "origin": edit(ts=lambda ts: float(ts) + 7e12),
    "middle": keep_a_fifth,
    "correlations": without_arguments("correlation", "External id", "external id"),
    "arrows": keep(lambda event: event.get("ph") not in ("s", "f")),
    "calls": keep(lambda event: category(event) not in CALLS),
    "host": keep(lambda event: event.get("ph") == "M" or category(event) in ON_DEVICE),
    "operators": keep(lambda event: category(event) not in ("cpu_op", "Operator")),
    "hip": edit("cuda_runtime", name=lambda name: name.replace("cuda", "hip")),
    "microseconds": edit(ts=lambda ts: int(float(ts)), dur=lambda dur: int(float(dur))),
    "synchronizing-calls": keep(lambda event: "ynchronize" not in name(event)),
    "kernel-names": edit(*KERNELS, name=lambda name: f"k{hash(name) & 0xFFFFFFFF:08x}"),
    "kernels": drop_every_third_kernel,
    "fast-kernels": edit(*KERNELS, dur=lambda dur: float(dur) / 20),
    "clock-ahead": edit(*ON_DEVICE, ts=lambda ts: float(ts) + 500_000),
    "clock-behind": edit(*ON_DEVICE, ts=lambda ts: float(ts) - 300),
}
"""What is taken away or changed, by name."""


def show(report: Report, *, verbose: bool) -> None:
    """Print what the report says, in short."""
    verdict = report.verdict
    print(f"{verdict.status}, {verdict.regime}: {verdict.cause}, {verdict.confidence}, {len(report.steps)} steps")
    if verbose:
        print("   ", verdict.headline)
        print("    doubts:", "; ".join(verdict.confidence_why))
        print("    advice:", "; ".join(f"{item.id}: {item.title}" for item in report.advice))
        print("    checks:", *(f"{check.name} {check.status}" for check in report.trust if check.status != "ok"))


def main() -> None:
    """Change each trace in each way, and print what the program says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--changes", default=",".join(CHANGES))
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "changed.json"
        for path in options.traces:
            content = path.read_bytes()
            text = gzip.decompress(content) if path.suffix == ".gz" else content
            for chosen in options.changes.split(","):
                document = json.loads(text)
                CHANGES[chosen](document)
                changed.write_text(json.dumps(document), encoding="utf-8")
                print(f"{path.name} | {chosen}: ", end="", flush=True)
                show(analyze(changed), verbose=options.verbose)


if __name__ == "__main__":
    main()
