"""Serve language models: a guide to the commands, and the same answers over the Model Context Protocol."""
