"""Run the command ``loopkit`` as ``python -m loopkit``."""

from loopkit.cli import main

main(prog_name="loopkit")
