"""Answer one question per module, from named tables to a named table."""
