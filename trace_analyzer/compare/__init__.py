"""Compare recordings before and after a change, check them against gates and baselines, and analyse series of batches.

The package is callable: ``trace_analyzer.compare(before, after)`` is `trace_analyzer.compare.decomposition.compare`. This is
necessary because importing any module of the package binds the name ``compare`` to the package instead of the function.
"""

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trace_analyzer.compare.comparison import Comparison


class _CallablePackage(ModuleType):
    """Call the function of the same name when the package is called."""

    def __call__(self, before: Any, after: Any, **options: Any) -> "Comparison":
        """Compare two sides: `trace_analyzer.compare.decomposition.compare`."""
        from trace_analyzer.compare.decomposition import compare

        return compare(before, after, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """Return the signature of the function, for completion."""
        from trace_analyzer.compare.decomposition import compare

        return inspect.signature(compare)


sys.modules[__name__].__class__ = _CallablePackage
