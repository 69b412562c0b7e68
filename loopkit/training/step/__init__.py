"""One optimizer step: its sizes and loop counts, the module and engine that run it, its metrics and health."""
