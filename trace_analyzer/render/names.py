"""Shorten names of kernels, symbols and Python frames, but keep their distinguishing parts."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from trace_analyzer import units
from trace_analyzer.catalog.event_names import FRAME

_NAMESPACES = re.compile(r"(?:\b\w+::|\(anonymous namespace\)::)+")
_WRAPPER = re.compile(r"Kernel\d*<(\w+)>")
"""An entry point around the kernel's own name: ``cutlass::Kernel2<cutlass_80_tensorop_...>``."""


_ARGUMENT = re.compile(r"(?:\w+::)*\w+")
_READ = 4_000
"""Number of characters of a name that are compared: template arguments come before function arguments."""
_MOST_ARGUMENTS = 3


def distinguishing_arguments(labelled: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the distinguishing template arguments of names with a common label: ``BFloat16``.

    ``labelled`` has names with their labels. Types come before numbers, and at most three arguments are returned.
    """
    by_label: dict[str, set[str]] = {}
    for name, label in labelled:
        by_label.setdefault(label, set()).add(name)
    alike = (sorted(names) for names in by_label.values() if len(names) > 1)
    return {name: text for names in alike for name, text in zip(names, _differences(names), strict=True) if text}


def _differences(names: Sequence[str]) -> list[str]:
    """Return the words of each name that differ, as few as distinguish all names."""
    words = [_ARGUMENT.findall(name[:_READ].replace("(anonymous namespace)::", "")) for name in names]
    columns = [column for column in zip_longest(*words, fillvalue="") if len(set(column)) > 1]
    columns.sort(key=lambda column: any(word[:1].isdigit() for word in column))
    arguments: list[tuple[str, ...]] = [() for _ in names]
    for column in columns:
        more = [(*row, word) for row, word in zip(arguments, column, strict=True)]
        if len(set(more)) > len(set(arguments)) and len(more[0]) <= _MOST_ARGUMENTS:
            arguments = more
    return [" ".join(filter(None, (word.rsplit("::", 1)[-1] for word in row))) for row in arguments]


def distinct_labels(names: Sequence[str], cells: int) -> list[str]:
    """Return each name's `kernel_label` of at most ``cells`` cells, with distinguishing arguments for equal labels."""
    labels = [kernel_label(name, cells) for name in names]
    arguments = distinguishing_arguments(zip(names, labels, strict=True))
    return [
        f"{kernel_label(name, max(1, cells - len(arguments[name]) - 2))}, {arguments[name]}"
        if name in arguments and len(arguments[name]) < cells // 2 else label
        for name, label in zip(names, labels, strict=True)
    ]  # fmt: skip


def kernel_label(name: str, cells: int) -> str:
    """Shorten a kernel's name to at most ``cells`` cells, keeping its distinguishing part longest.

    A C++ name loses its return type, its arguments and its namespaces, then its end, as the distinguishing functor
    comes first. Any other name loses its middle, because libraries put the tile at the end.
    """
    text = units.visible(name)
    if units.cell_width(text) <= cells:
        return text
    if (label := cutlass_label(text)) is not None:
        return units.shorten(label, cells)
    bare = _without_arguments(text)
    short = _NAMESPACES.sub("", _without_return_type(bare) if bare != text else text.removeprefix("void "))
    wrapper = _WRAPPER.fullmatch(short)
    if wrapper or "<" not in short:
        return middle_cut(wrapper[1] if wrapper else short, cells)
    return units.shorten(short, cells)


def _without_arguments(name: str) -> str:
    if not name.endswith(")"):
        return name
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if depth == 0:
            return name[:position]
    return name


def _without_return_type(name: str) -> str:
    """Return a template's name without the type before it.

    That is the part before the last space outside all brackets.
    """
    opened: list[str] = []
    start = 0
    for position, sign in enumerate(name):
        if sign in "<(":
            opened.append(sign)
        elif opened and opened[-1] + sign in ("<>", "()"):
            opened.pop()
        elif sign == " " and not opened:
            start = position + 1
    return name[start:] if "<" in name[start:] else name


def middle_cut(text: str, cells: int) -> str:
    """Cut the text in its middle to at most ``cells`` cells, with an ellipsis at the cut."""
    if units.cell_width(text) <= cells:
        return text
    head = units.shorten(text, max(1, cells * 3 // 5))
    tail = units.shorten(text[::-1], max(0, cells - units.cell_width(head)) + 1)[-2::-1]
    return head + tail


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
        class_[1] if class_ else re.split(r"[<>(),]", inside, maxsplit=1)[0].strip().rsplit("::", 1)[-1],
        *("x".join(tile) for tile in tiles[:1]),
        *list(dict.fromkeys(_TYPE.findall(inside)))[:2],
        *list(dict.fromkeys(_SCHEDULE.findall(inside)))[:2],
    ]
    return f"device_kernel · {' '.join(filter(None, parts))}" if any(parts) else None


_PYTHON_FRAME = re.compile(r".*\.py\(\d+\): (.+)")
# In a C++ symbol, no word continues after a closing bracket, except for casts and lambdas in templates, which return
# void; annotations such as "enumerate(DataLoader)#..." do continue.
_CONTINUED = re.compile(r"\)[\w#]")
_SYMBOL = re.compile(r"void .*|\w+\(.*|.*::.*<.*", re.DOTALL)
_INNERMOST_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")
_ELEMENTWISE = re.compile(r"[Kk]ernel\d?|\w*elementwise_kernel\w*|reduce_kernel")
_WRAPPED = re.compile(
    r"\b(?:cutlass_\w+|(?!(?:Binary|AUnary|BUnary)Functor\b)\w*[Ff]unctor\w*|\w+_kernel_cuda\b|\w+Ops\b|(?!gpu_)\w+_kernel\b)"
)


_LONGEST = 8_000
"""Number of characters of a name that are read: the longest symbols have fewer, and nested brackets take quadratic
time."""


def short_name(name: str) -> str:
    """Return the distinctive part of a name: the function of a Python frame, a C++ symbol without its types.

    A kernel that only applies another function to every element is also named for that function.
    """
    name = name[:_LONGEST]
    frame = _PYTHON_FRAME.fullmatch(name)
    if frame:
        return frame[1]
    if not _SYMBOL.fullmatch(name) or (not name.startswith("void ") and _CONTINUED.search(name)):
        return name
    if (label := cutlass_label(name)) is not None:
        return label
    bare = _without_brackets(name).split(" ")[-1].rsplit("::", 1)[-1]
    wrapped = _WRAPPED.search(name, name.find("<")) if _ELEMENTWISE.fullmatch(bare) and "<" in name else None
    if wrapped is None:
        return bare or name
    return wrapped[0] if wrapped[0].startswith("cutlass_") else f"{bare} · {wrapped[0]}"


def _without_brackets(name: str) -> str:
    bare, count = _INNERMOST_BRACKETS.subn("", name)
    while count:
        bare, count = _INNERMOST_BRACKETS.subn("", bare)
    return bare


def frame_label(name: str) -> str | None:
    """Return ``function · file.py`` for a Python frame; None for any other name."""
    match = FRAME.fullmatch(name)
    if match is None or not match["file"].endswith(".py"):
        return None
    return f"{match['function']} · {match['file'].replace(chr(92), '/').rsplit('/', 1)[-1]}"
