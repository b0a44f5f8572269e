"""Name the parts of a change that can be asked for alone, as the fixes of the catalogue do."""

from collections.abc import Mapping

PARTS: Mapping[str, tuple[str, ...]] = {
    "fuse": ("attention", "chain", "optimizer"),
    "warm": ("allocation", "compilation"),
}
"""Change -> its parts: the values of ``--fuse-only`` and ``--warm-only``."""
PART_OPTION: Mapping[str, str] = {"fuse": "of", "warm": "only"}
"""Change -> the option of it that names a part."""
