"""Fuzz the whole program: random and damaged traces through analysis, estimates, comparisons and all their outputs.

    python fuzz/fuzz_program.py [TRACE ...] [--seconds 120] [--seed 0]

``tests/program_laws.py`` defines the properties. Given traces are damaged too, after truncation to their first events.
An input that violates a property is saved as ``crash-program-SEED.json``; run it again with ``python
fuzz/fuzz_program.py --again FILE``.
"""

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from mutations import mutated, random_trace, seeds  # noqa: E402
from program_laws import check_program  # noqa: E402

EVENTS = 1_500


def first_events(path: Path, count: int = EVENTS) -> bytes:
    """Read the first events of a trace, and the device events that belong to them."""
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content, strict=False)
    return json.dumps(document | {"traceEvents": document["traceEvents"][:count]}).encode()


def main() -> int:
    """Run until the time is up; return 1 if a property was violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--again", type=Path)
    given = parser.parse_args()
    if given.again:
        check_program(given.again.read_bytes())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        seeds(Path(folder))
        corpus = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    corpus += [first_events(path) for path in given.traces]
    end, seed, refused = time.monotonic() + given.seconds, given.seed, 0
    while time.monotonic() < end:
        choose = random.Random(seed)
        data = mutated(choose.choice([*corpus, random_trace(choose)]), seed)
        try:
            refused += check_program(data, page=choose.random() < 0.3, verbs=choose.random() < 0.5) is None
        except Exception:
            traceback.print_exc()
            left = Path(f"crash-program-{seed}.json")
            left.write_bytes(data)
            print(f"{left}: run it again with --again {left}", file=sys.stderr)
            return 1
        seed += 1
    print(f"{seed - given.seed:,} inputs from seed {given.seed} on, {refused:,} of them refused: every promise held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
