"""Checks of a model before any data is read."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.cost.plan import Assumptions, plan
from loopkit.errors import UserError
from loopkit.evaluation.audit import audit_recipe
from loopkit.evaluation.audit.preflight import preflight
from loopkit.recipe import load_recipe
from loopkit.runs import RunFolder
from loopkit.training.train import train
from tests.recipe.conftest import BASE

PLUGINS = '''
import torch
from torch import Tensor

from loopkit.components.core import Stack
from loopkit.components.injection import Injection
from loopkit.registry import register


@register("core", "streams")
class Streams(Stack):
    """Wants four streams, whatever the start gives."""

    def __init__(self, width: int, block: object, max_loops: int, *, layers: int = 1) -> None:
        super().__init__(block, layers=layers)

    def forward(self, u: Tensor, step: object) -> Tensor:
        return super().forward(torch.einsum("btsd,sr->btrd", u, u.new_ones(4, 4)), step)


@register("core", "counts")
class Counts(Stack):
    """Runs, though not without numbers."""

    def __init__(self, block: object, *, layers: int = 1) -> None:
        super().__init__(block, layers=layers)

    def forward(self, u: Tensor, step: object) -> Tensor:
        return super().forward(u * float(u.abs().max().item() > 0), step)


@register("injection", "shut")
class Shut(Injection):
    """Multiplies the input by nothing."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, c: Tensor, e: Tensor, step: object) -> Tensor:
        return c + 0.0 * e


@register("injection", "closed")
class Closed(Injection):
    """Multiplies the input by a matrix that is zero at first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(width, width, bias=False)

    def reset_parameters(self) -> None:
        torch.nn.init.zeros_(self.mix.weight)

    def forward(self, c: Tensor, e: Tensor, step: object) -> Tensor:
        return c + self.mix(e)
'''


@pytest.fixture
def recipe_path(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text(PLUGINS)
    file = tmp_path / "mine.yaml"
    file.write_text(BASE + "plugins: [parts.py]\n")
    return file


def validate(file: Path, *texts: str) -> tuple[int, list[str]]:
    words = [word for text in texts for word in ("--set", text)]
    result = CliRunner().invoke(main, ["validate", str(file), "--build", "--json", *words])
    return result.exit_code, [problem["message"] for problem in json.loads(result.stdout)["problems"]]


REFUSED = [
    (("model.core=streams",), r"the model of mine does not run: model\.core: RuntimeError: .*parts\.py:18"),
    (("model.tie={a.b: c.d}",), r"model\.tie: the model has no 'a\.b'"),
    (("train.trainable=['nothing*']",), r"train\.trainable: no parameter matches 'nothing\*'"),
    (("model.start=zeros", "model.injection=shut"), "the logits do not depend on the input"),
]


@pytest.mark.parametrize(("texts", "message"), REFUSED)
def test_faulty_models_are_refused_before_any_data(
    recipe_path: Path, texts: tuple[str, ...], message: str, monkeypatch
) -> None:
    recipe = load_recipe(recipe_path, (), texts)
    monkeypatch.setattr("loopkit.training.train.prepare", lambda *args, **options: pytest.fail("data was read"))
    state = torch.get_rng_state()
    with pytest.raises(UserError, match=message):
        train(recipe, folder=RunFolder(recipe_path.parent / "run"))
    assert not (recipe_path.parent / "run").exists()
    code, messages = validate(recipe_path, *texts)
    assert code == 2
    assert len(messages) == 1
    with pytest.raises(UserError, match=message):
        raise UserError(messages[0])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "texts",
    [(), ("model.core=counts",), ("model.start=zeros", "model.injection=closed"), ("model.head=untied",)],
)
def test_models_that_run_pass(recipe_path: Path, texts: tuple[str, ...]) -> None:
    preflight(load_recipe(recipe_path, (), texts))
    assert validate(recipe_path, *texts) == (0, [])


@pytest.mark.parametrize("loops_per", ["step", "micro_step", "sequence"])
def test_parameters_per_loop_need_aligned_loops(loops_per: str, recipe_path: Path) -> None:
    readout = "{type: alpha, per_loop: true}"
    recipe = load_recipe(recipe_path, (), [f"model.readout={readout}", f"train.loops_per={loops_per}"])
    expected = r"train\.loops_per: readout 'alpha' has parameters for each loop"
    with pytest.raises(UserError, match=expected) if loops_per == "sequence" else nullcontext():
        preflight(recipe)


def test_plan_rejects_only_faulty_models(recipe_path: Path) -> None:
    assume = Assumptions(flops_per_s=1e12)
    with pytest.raises(UserError, match=r"does not run: model\.core"):
        plan(load_recipe(recipe_path, (), ["model.core=streams"]), assume)
    with pytest.raises(UserError, match=r"memory of this model cannot be estimated.*train\.micro_batch"):
        plan(load_recipe(recipe_path, (), ["model.core=counts"]), assume)


def test_audit_reports_a_dead_path(recipe_path: Path) -> None:
    dead = audit_recipe(load_recipe(recipe_path, (), ["model.start=zeros", "model.injection=shut"]))
    assert not dead.reads_input
    assert audit_recipe(load_recipe(recipe_path)).reads_input
    words = ["audit", str(recipe_path), "--strict", "--set", "model.start=zeros", "--set", "model.injection=shut"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "input: dead path" in result.output
