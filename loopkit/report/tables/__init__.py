"""Tables for a terminal of 80 columns and for Markdown."""
