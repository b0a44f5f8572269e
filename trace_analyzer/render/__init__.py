"""Render reports for the terminal, Markdown, JSON, the page, plots and files."""
