"""The command line: one module per command, which imports the rest when it runs."""

from loopkit.cli.main import main

__all__ = ["main"]
