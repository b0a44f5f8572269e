"""Write trace_analyzer/catalog/operators.txt: operators whose names have an underscore, as Inductor's kernels join names by it.

python .ci/operators.py
"""

from pathlib import Path

import torch
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings

NAMESPACES = ("aten", "prims", "inductor", "_c10d_functional", "quantized_decomposed")
FILE = Path(__file__).parents[1] / "trace_analyzer" / "catalog" / "operators.txt"


def operators() -> list[str]:
    """Return the names of operators without side effects that Inductor compiles, in alphabetical order."""
    packets = {getattr(key, "_overloadpacket", key) for key in (*lowerings, *decompositions)}
    operators = [packet for packet in packets if isinstance(packet, torch._ops.OpOverloadPacket)]
    names = {one.__name__ for one in operators if one._qualified_op_name.partition("::")[0] in NAMESPACES}
    return sorted(name for name in names if "_" in name and not name.endswith("_") and not name.startswith("__"))


if __name__ == "__main__":
    head = f"# Written by .ci/operators.py from PyTorch {torch.__version__}."
    FILE.write_text("\n".join([head, *operators(), ""]), "utf-8")
