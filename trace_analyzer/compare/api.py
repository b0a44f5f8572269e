"""Offer `compare` and `scaling` as library calls."""

from functools import partial
from typing import Any

from trace_analyzer.compare.comparison import Comparison
from trace_analyzer.compare.decomposition import compare_profiles
from trace_analyzer.compare.scaling import Scaling, scale_profiles
from trace_analyzer.compare.sides import SideSource, profile_side
from trace_analyzer.pipeline import analyze
from trace_analyzer.signatures import takes_options_of


@takes_options_of(analyze)
def compare(before: SideSource, after: SideSource, **options: Any) -> Comparison:
    """Compare two sides: how their steps differ, line by line, without remainder.

    Each side is a path of a trace, of a folder or of a saved JSON report, a pattern such as ``runs/*.json.gz``, a
    `Report`, or a list of paths or reports. Each of several recordings counts as one observation. ``options`` are those
    of `trace_analyzer.analyze`, for sides that are paths. An impossible comparison has the status ``refused`` and a
    reason. Raises ``InputError`` and ``UsageError`` like `analyze`.
    """
    read = partial(analyze, **options)
    return compare_profiles(profile_side(before, read), profile_side(after, read))


@takes_options_of(analyze)
def scaling(*sources: SideSource, **options: Any) -> Scaling:
    """Compare recordings of a program at several batches: which times are flat or grow, and where regimes change.

    ``sources`` are at least two, in the forms that `compare` accepts; ``options`` are those of
    `trace_analyzer.analyze`. Raises ``UsageError`` for fewer than two.
    """
    read = partial(analyze, **options)
    return scale_profiles([profile_side(source, read) for source in sources])
