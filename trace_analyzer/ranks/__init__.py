"""Judge a whole job from the traces of its ranks: each rank is summed up where it is read, summaries are matched and judged."""
