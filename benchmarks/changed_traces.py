"""Show the program's answers for traces from which data was removed, or in which data was changed.

    python benchmarks/changed_traces.py TRACE... [--changes stacks,shapes]

Each line has the trace, the change, and status, regime, cause and confidence; ``-v`` adds headline, doubts, advice and
checks. Read it as an expert would: no line may claim more than the remaining data support. An exception ends the
program.
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
    """Return the category of an event; "" without one."""
    return str(event.get("cat", ""))


def name(event: Event) -> str:
    """Return the name of an event; "" without one."""
    return str(event.get("name", ""))


def keep(is_kept: Callable[[Event], bool]) -> Callable[[Document], None]:
    """Return a change that keeps some events."""

    def change(document: Document) -> None:
        document["traceEvents"] = [event for event in document["traceEvents"] if is_kept(event)]

    return change


def edit(*categories: str, **values: Callable[[Any], Any]) -> Callable[[Document], None]:
    """Return a change of fields of events in some categories, by default of all events."""

    def change(document: Document) -> None:
        for event in document["traceEvents"]:
            if not categories or category(event) in categories:
                event |= {key: make(event[key]) for key, make in values.items() if key in event}

    return change


def without_arguments(*starts: str) -> Callable[[Document], None]:
    """Return a change that drops arguments whose names begin with these prefixes."""
    return edit(args=lambda args: {k: v for k, v in args.items() if not k.startswith(starts)})


def rename_devices(document: Document) -> None:
    """Give the devices a name that the catalogue lacks."""
    for properties in document.get("deviceProperties", []):
        properties["name"] = "NVIDIA X9000 Ultra"


def drop_header(document: Document) -> None:
    """Remove everything but the events."""
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


def rename(change: Callable[[str], str], *categories: str) -> Callable[[Document], None]:
    """Return a change of the names of events in some categories, by default of all events."""
    return edit(*categories, name=change)


def recategorize(names: dict[str, str]) -> Callable[[Document], None]:
    """Return a change of categories."""
    return edit(cat=lambda cat: names.get(str(cat), cat))


def to_old_format(document: Document) -> None:
    """Use the categories of PyTorch 1.8, and remove what it did not record."""
    recategorize(
        {
            "cpu_op": "Operator",
            "cuda_runtime": "Runtime",
            "kernel": "Kernel",
            "gpu_memcpy": "Memcpy",
            "gpu_memset": "Memset",
        }
    )(document)
    without_arguments("Input Strides", "Concrete", "Ev Idx", "Record function", "Sequence", "Fwd thread")(document)


def to_two_devices(document: Document) -> None:
    """Move every other activity to a second device of the same kind."""
    for event in [event for event in document["traceEvents"] if category(event) in ON_DEVICE][::2]:
        event |= {"pid": 1, "args": {**event.get("args", {}), "device": 1, "stream": 77}}
    for properties in document.get("deviceProperties", [])[:1]:
        document["deviceProperties"] = [properties, {**properties, "id": 1}]


def to_partition(document: Document) -> None:
    """Turn the devices into partitions of themselves."""
    for properties in document.get("deviceProperties", []):
        properties |= {"name": f"{properties.get('name')} MIG 1g.10gb", "numSms": 14, "totalGlobalMem": 10 * 2**30}


def drop_device_names(document: Document) -> None:
    """Remove the names of devices, as ROCm does without its table of names."""
    for properties in document.get("deviceProperties", []):
        properties["name"] = ""


def keep_half(*, first: bool) -> Callable[[Document], None]:
    """Return a change that keeps the spans that start in one half of the time."""

    def change(document: Document) -> None:
        starts = [float(event["ts"]) for event in document["traceEvents"] if event.get("ph") == "X"]
        middle = (min(starts) + max(starts)) / 2
        keep(lambda event: event.get("ph") != "X" or (float(event["ts"]) < middle) is first)(document)

    return change


def stretch_host(document: Document) -> None:
    """Stretch everything but the device's work to three times its duration."""
    spans = [event for event in document["traceEvents"] if "ts" in event]
    begin = min(float(event["ts"]) for event in spans)
    for event in spans:
        event["ts"] = begin + 3 * (float(event["ts"]) - begin)
        if "dur" in event and category(event) not in ON_DEVICE:
            event["dur"] = 3 * float(event["dur"])


def without_device(document: Document) -> None:
    """Keep only CPU events without calls, as for a run whose device was not recorded."""
    keep(lambda event: category(event) not in (*ON_DEVICE, *CALLS))(document)
    document.pop("deviceProperties", None)


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
    "old-format": to_old_format,
    "two-devices": to_two_devices,
    "partition": to_partition,
    "nameless": drop_device_names,
    "first-half": keep_half(first=True),
    "second-half": keep_half(first=False),
    "slow-host": stretch_host,
    "cpu": without_device,
    "mps": lambda document: (
        without_device(document),
        rename(lambda name: name.replace("aten::copy_", "aten::_mps_convolution"))(document),
    )[0],
    "windows": rename(lambda name: f"C:\\venv\\Lib\\{name}".replace("/", "\\"), "python_function"),
    "xpu": recategorize({"cuda_runtime": "xpu_runtime", "cuda_driver": "xpu_driver"}),
    "npu": recategorize(dict.fromkeys(ON_DEVICE, "npu_kernel")),
    "lightning": rename(lambda name: "[pl][profile]run_training_batch" if name.startswith("ProfilerStep") else name),
    "accelerate": rename(lambda name: "train_batch" if name.startswith("ProfilerStep") else name),
    "vllm": rename(lambda name: "execute_context_0(0)_generation_16(16)" if name.startswith("ProfilerStep") else name),
    "one-kernel-name": rename(lambda name: "main_kernel", *KERNELS),
    "triton-names": rename(lambda name: f"triton_poi_fused_{len(name) % 7}", *KERNELS),
    "proton-names": rename(
        lambda name: f"matmul_kernel_{len(name) % 3}" if "gemm" in name.lower() else f"_fwd_kernel_{len(name) % 5}",
        *KERNELS,
    ),
}
"""Changes by name."""


def show(report: Report, *, verbose: bool) -> None:
    """Print the report's answers in short form."""
    verdict = report.verdict
    print(f"{verdict.status}, {verdict.regime}: {verdict.cause}, {verdict.confidence}, {len(report.steps)} steps")
    if verbose:
        print("   ", verdict.headline)
        print("    doubts:", "; ".join(verdict.confidence_why))
        print("    advice:", "; ".join(f"{item.id}: {item.title}" for item in report.advice))
        print("    checks:", *(f"{check.name} {check.status}" for check in report.trust if check.status != "ok"))


def main() -> None:
    """Apply each change to each trace, and print the program's answers."""
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
