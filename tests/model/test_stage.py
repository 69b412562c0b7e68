"""Prelude and coda have their norm on the side of the loop."""

from __future__ import annotations

import torch

from loopkit.components.norm import RMSNorm
from loopkit.model.parameter_groups import parameter_groups
from loopkit.model.stage import Coda, Prelude
from loopkit.recipe.format import StageConfig
from tests.components.steps import random, step_for
from tests.components.test_core import Append
from tests.model.tiny import tiny


def test_stage_norms_face_the_loop() -> None:
    Append.made = 0
    blocks, norm, x = [Append(), Append()], RMSNorm(4), random(1, 2, 4)
    torch.testing.assert_close(Prelude(blocks, norm)(x, step_for(x)), norm(100 * x + 12))
    torch.testing.assert_close(Coda(blocks, norm)(x, step_for(x)), 100 * norm(x) + 12)
    assert Prelude([], None)(x, step_for(x)) is x
    assert Coda([], None)(x, step_for(x)) is x


def test_projection_lies_between_norm_and_blocks() -> None:
    Append.made = 0
    blocks, norm, x = [Append(), Append()], RMSNorm(4), random(1, 2, 4)
    prelude = Prelude(blocks, norm, (4, "orthogonal"))
    coda = Coda(blocks, norm, (4, "identity"))
    for stage in (prelude, coda):
        stage.reset_parameters()
    w = prelude.project.weight
    torch.testing.assert_close(w @ w.T, torch.eye(4))
    assert (w - torch.eye(4)).abs().max() > 0.1
    torch.testing.assert_close(prelude(x, step_for(x)), norm((100 * x + 12) @ w.T))
    assert torch.equal(coda.project.weight, torch.eye(4))
    with torch.no_grad():
        coda.project.weight.copy_(2 * torch.eye(4))
    torch.testing.assert_close(coda(x, step_for(x)), 100 * (2 * norm(x)) + 12)


def test_projections_and_injections_skip_init_and_decay() -> None:
    model = tiny(
        coda=StageConfig(layers=1, project="identity"), injection="diagonal", init={"type": "normal", "std": 3.0}
    )
    assert torch.equal(model.coda.project.weight, torch.eye(model.width))
    assert torch.equal(model.injection.mix.weight, torch.eye(model.width))
    spared = {id(p) for group in parameter_groups(model) if not group.decay for p in group.params}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in spared}
    assert names == {"coda.project.weight", "injection.mix.weight", "injection.log_rate", "injection.step_size"}
