"""Keep compiled templates, so that the next page does not compile them again (benchmarks/startup.py --tricks).

They are files in the user's cache folder, one for each template, and hold Python code, as those that Python keeps of modules. One
that is damaged, or was made of another text or by another version of Jinja or Python, counts as not there; so does a folder
that others can write to.
"""

import contextlib
import hashlib
import os
import stat
from importlib.metadata import version
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from trace_analyzer.files import write_bytes
from trace_analyzer.user_folders import template_folder

_DIGEST_BYTES = 20


class CompiledTemplates(BytecodeCache):
    """Keep compiled templates in the user's cache folder. A folder that cannot be used is no failure."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with the template's code if it is kept and sound."""
        with contextlib.suppress(OSError, RuntimeError):
            path = _path(bucket)
            content = path.read_bytes() if _is_private(path.parent) else b""
            digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if digest == _digest(code):
                bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket's code."""
        code = bucket.bytecode_to_string()
        with contextlib.suppress(OSError, RuntimeError):
            path = _path(bucket)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(path.parent):
                write_bytes(path, _digest(code) + code)


def _path(bucket: Bucket) -> Path:
    return template_folder().joinpath(bucket.key)


def _digest(code: bytes) -> bytes:
    """Return the digest of code and of what made it: Jinja says in it which Python and which text, and not which Jinja."""
    return hashlib.blake2b(version("jinja2").encode() + b" " + code, digest_size=_DIGEST_BYTES).digest()


def _is_private(folder: Path) -> bool:
    """Return whether a folder is the user's own and none but the user can write to it, where the system tells."""
    status = folder.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & others)
