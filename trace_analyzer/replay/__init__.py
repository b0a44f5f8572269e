"""Predict the effect of a change: replay the dependency graph of a trace with other weights."""
