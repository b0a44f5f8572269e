"""Recognise other files that users pass as traces by their first bytes, and suggest what to do instead."""

import re
from collections.abc import Iterable

_UNPACK = "unpack it and name the trace in it"
_BEGINNINGS = (
    (b"PK\x03\x04", f"a zip archive; {_UNPACK}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7z archive; {_UNPACK}"),
    (b"\xfd7zXZ\0", "compressed by xz; decompress it first (`xz -d`)"),
    (b"BZh", "compressed by bzip2; decompress it first (`bunzip2`)"),
    (b"\x04\x22\x4d\x18", "compressed by lz4; decompress it first (`lz4 -d`)"),
    (b"\x1f\x8b", "compressed twice; decompress it once (`gunzip`)"),
    (b"\x28\xb5\x2f\xfd", "compressed twice; decompress it once (`unzstd`)"),
    (b"\0\0\0\0", "no text: it begins with NUL bytes, as a crash or an interrupted copy leaves them; copy it again"),
    (b"version https://git-lfs", "a Git LFS pointer in the place of the file; fetch that (`git lfs pull`)"),
    (b"SQLite format 3\0", "an SQLite database, as Nsight Systems and rocprof write it; record with torch.profiler"),
    *(
        (b"\x80" + bytes([protocol]), "a pickle, as torch.cuda.memory writes its snapshots; record with torch.profiler")
        for protocol in range(2, 6)
    ),
)
"""First bytes of other file types, after one decompression if needed; no JSON document begins with them."""
_ENCODED = (
    ("UTF-32", re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff")),  # begins like UTF-16, so it must come first
    ("UTF-16", re.compile(rb"\xff\xfe|\xfe\xff")),
    ("UTF-32LE", re.compile(rb"[{\[]\0\0\0[^\0]")),
    ("UTF-32BE", re.compile(rb"\0\0\0[{\[]\0")),
    ("UTF-16LE", re.compile(rb"[{\[]\0[^\0]")),
    ("UTF-16BE", re.compile(rb"\0[{\[]\0[^\0]")),
)
"""First bytes of text in other encodings: a byte order mark or, without one, the bracket of a JSON document."""
_PYTHON = re.compile(rb"\s*[{\[]\s*(?:[{\[]\s*)?'")
_PAGE = re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_NAME, _MAGIC = slice(0, 100), slice(257, 262)
"""Fields of a tar archive's header: the first file's name, padded with NUL, and the magic bytes."""
_DOCUMENTS = (
    (
        {"schema", "nodes"},
        "an execution trace (ExecutionTraceObserver), which has no kernels; record with torch.profiler",
    ),
)
"""Keys of PyTorch's other JSON documents."""


def mistaken_file(content: bytes) -> str | None:
    """Name the file type of this content, worded to follow "is"; None for an unknown type."""
    if _PAGE.match(content):
        return "a page of HTML, as a download without permission gets; download the trace again"
    if b"\0" in content[_NAME] and content[_MAGIC] == b"ustar":
        return f"a tar archive; {_UNPACK}"
    if _PYTHON.match(content):
        return "a Python literal (keys in single quotes), not JSON; write it with `json.dump`"
    for encoding, beginning in _ENCODED:
        if beginning.match(content):
            return f"{encoding[:6]} text; convert it to UTF-8 (`iconv -f {encoding} -t UTF-8`)"
    return next((what for start, what in _BEGINNINGS if content.startswith(start)), None)


def mistaken_document(keys: Iterable[str]) -> str | None:
    """Name the document type of a JSON object with these keys, worded to follow "is"; None for an unknown type."""
    held = set(keys)
    return next((what for needed, what in _DOCUMENTS if needed <= held), None)
