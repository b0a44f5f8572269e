"""Read files at addresses that fsspec supports: ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://``."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trace_analyzer.errors import UsageError


def is_remote(path: str) -> bool:
    """Return whether the path is an address such as ``s3://...``, not a local file."""
    return "://" in path


def file_system(source: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it.

    Raises ``UsageError`` where fsspec, or the package that it needs for such addresses, is not installed.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(f"{source}: addresses need fsspec: pip install 'torch-trace-analyzer[remote]'") from None
    try:
        system, path = url_to_fs(source)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{source}: {error}") from None
    return system, str(path)


@contextmanager
def local_copy(path: str) -> Iterator[Path]:
    """Yield a temporary file with the content of an address; a local path is yielded unchanged.

    Raises ``UsageError`` like `file_system`, and ``OSError`` where the file cannot be read.
    """
    if not is_remote(path):
        yield Path(path)
        return
    system, place = file_system(path)
    with tempfile.TemporaryDirectory(prefix="analyze-") as folder:
        copy = Path(folder) / (Path(place).name or "trace.json")
        with system.open(place, "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        yield copy
