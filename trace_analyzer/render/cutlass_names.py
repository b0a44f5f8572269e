"""Name CUTLASS 3 kernels, all instances of ``cutlass::device_kernel``, by their distinguishing parts."""

import re

_DEVICE_KERNEL = re.compile(r"\bdevice_kernel<")
_MEASURED = 16_000
"""Number of characters of a name that are read: the tile comes after several nested types."""
_CLASS = re.compile(
    r"\b(\w*(?:Gemm|Conv)Universal\w*|FlashAttn\w+|\w*Fmha\w*|\w*Mla\w*|\w*ReduceSplitK\w*|\w*Compressor\w*|\w+_(?:gemm|conv|mm)\w*)"
)
_TILE = re.compile(
    r"tuple<\s*(?:cute::)?(?:C|_|Int)<(\d+)>,\s*(?:cute::)?(?:C|_|Int)<(\d+)>,\s*(?:cute::)?(?:C|_|Int)<(\d+)>"
)
_SHORT_TILE = re.compile(r"tuple<\s*(?:cute::)?_(\d+),\s*(?:cute::)?_(\d+),\s*(?:cute::)?_(\d+)\b")
_TYPE = re.compile(r"\b(?:cutlass::)?(bfloat16_t|half_t|tfloat32_t|float_\w+_t|integer_\w+|int8_t)\b")
_SCHEDULE = re.compile(r"(Pingpong|Cooperative|StreamK|PtrArray|GroupProblemShape|BlockScaled|BlockwiseScal\w*)")


def cutlass_label(name: str) -> str | None:
    """Return class, tile, types and schedule of a ``device_kernel``; None for other names, and where they are missing.

    The first tile that is no cluster (1 or 2 in each direction) counts; CUTLASS writes the thread block's tile there.
    """
    name = name[:_MEASURED]
    match = _DEVICE_KERNEL.search(name)
    if match is None:
        return None
    inside = name[match.end() :]
    class_ = _CLASS.search(inside)
    tiles = [tile for pattern in (_TILE, _SHORT_TILE) for tile in pattern.findall(inside) if max(map(int, tile)) > 4]
    parts = [
        class_[1] if class_ else _first_identifier(inside),
        *("x".join(tile) for tile in tiles[:1]),
        *list(dict.fromkeys(_TYPE.findall(inside)))[:2],
        *list(dict.fromkeys(_SCHEDULE.findall(inside)))[:2],
    ]
    return f"device_kernel · {' '.join(filter(None, parts))}" if any(parts) else None


def _first_identifier(inside: str) -> str:
    """Return the identifier of the first template argument without its namespaces."""
    return re.split(r"[<>(),]", inside, maxsplit=1)[0].strip().rsplit("::", 1)[-1]
