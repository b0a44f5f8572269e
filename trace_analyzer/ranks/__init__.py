"""Judge a whole job from the traces of its ranks, each summed up where it is read."""
