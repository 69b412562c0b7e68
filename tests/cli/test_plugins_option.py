"""``--plugins`` of commands that open a run: more components, without a change of the run."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from loopkit.cli.main import main
from loopkit.evaluation.trained_run import open_run

PROBE = '''
from loopkit.components.probe.norms import Norms
from loopkit.registry import register


@register("probe", "mine")
class Mine(Norms):
    """A probe of a plugin file."""

    def __init__(self) -> None:
        super().__init__()
'''


@pytest.mark.parametrize("name", ["eval", "generate", "export", "audit", "train", "plan", "bench", "show", "list"])
def test_every_building_command_takes_plugins(name: str) -> None:
    command = main.get_command(click.Context(main), name)  # type: ignore[attr-defined]
    assert "plugins" in {parameter.name for parameter in command.params}


def test_a_run_is_evaluated_with_plugin_components(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PROBE)
    opened = open_run("tiny", plugins=[file], overrides=("evaluate.probes.mine={}",), root=runs)
    assert opened.recipe.evaluate.probes["mine"].name == "mine"
    assert opened.recipe_hash == open_run("tiny", root=runs).recipe_hash
