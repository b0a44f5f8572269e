"""Judge a job from the traces of its ranks, each of which is summarized where it is read."""
