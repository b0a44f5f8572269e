"""Name the parts of a change that can be selected alone, as some fixes of the catalogue do."""

from collections.abc import Mapping

PARTS: Mapping[str, tuple[str, ...]] = {
    "fuse": ("attention", "chain", "optimizer"),
    "warm": ("allocation", "compilation"),
}
"""Change -> its parts, which are the values of ``--fuse-only`` and ``--warm-only``."""
PART_OPTION: Mapping[str, str] = {"fuse": "of", "warm": "only"}
"""Change -> its option that names a part."""
