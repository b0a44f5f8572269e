"""Predict what a change would bring: the dependency graph of a trace, replayed with other weights."""
