"""Cache compiled templates, so that the next page does not compile them again (benchmarks/startup.py --tricks).

They are files in the user's cache folder, one per template, which contain Python code, like Python's own cached
modules. A damaged file, or one from another text or another version of this program, Jinja or Python, counts as
missing; so does a file that other users own or can write to.
"""

import contextlib
import hashlib
import os
import stat
import sys
from importlib.metadata import version
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from trace_analyzer.files import write_bytes
from trace_analyzer.user_folders import template_folder
from trace_analyzer.version import tool_version

_DIGEST_BYTES = 20


class CompiledTemplates(BytecodeCache):
    """Cache compiled templates in the user's cache folder. An unusable folder is no failure."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with the template's code if it is cached and valid."""
        with contextlib.suppress(OSError, RuntimeError):
            with _path(bucket).open("rb") as file:
                content = file.read() if _is_private(os.fstat(file.fileno())) else b""
            digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if digest == _digest(code):
                bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Cache the bucket's code."""
        code = bucket.bytecode_to_string()
        with contextlib.suppress(OSError, RuntimeError):
            path = _path(bucket)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(path.parent.stat()):
                write_bytes(path, _digest(code) + code)
                path.chmod(0o600)


def _path(bucket: Bucket) -> Path:
    return template_folder().joinpath(bucket.key)


def _digest(code: bytes) -> bytes:
    """Return a digest of the code and of the programs that made it.

    Jinja's code identifies text and Python, but not Jinja.

    This program is included because Jinja applies filters to constants at compile time.
    """
    makers = f"{tool_version()} {version('jinja2')} {sys.implementation.cache_tag} "
    return hashlib.blake2b(makers.encode() + code, digest_size=_DIGEST_BYTES).digest()


def _is_private(status: os.stat_result) -> bool:
    """Return whether the file belongs to the user and only the user can write to it, where the system has owners."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & others)
