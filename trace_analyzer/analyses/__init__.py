"""Answer one question per module: each makes a named table from other named tables."""
