"""Compare recordings, hold them against bounds and baselines, and scale with the batch."""
