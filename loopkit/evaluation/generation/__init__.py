"""Tasks that generate completions: at every depth, each completion saved as soon as it exists."""
