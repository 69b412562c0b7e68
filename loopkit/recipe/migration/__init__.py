"""Formats of recipes: what was renamed, and how a file is rewritten."""
