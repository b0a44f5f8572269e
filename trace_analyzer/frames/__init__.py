"""Provide the building blocks of analyses: intervals, look-ups and compiled loops."""
