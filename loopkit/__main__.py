"""``python -m loopkit`` is the command ``loopkit``."""

from loopkit.cli import main

main(prog_name="loopkit")
