"""Findings and verdict -> advice."""
from collections.abc import Mapping

import polars as pl

from trace_analyzer.report import Advice, Verdict


def advise(verdict: Verdict, frames: Mapping[str, pl.DataFrame]) -> tuple[Advice, ...]:
    return ()
