"""The narrow surrogate model: sizes that shrink and sizes that stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from loopkit.evaluation.audit.surrogate import narrow, narrow_width, surrogate
from loopkit.recipe import Recipe, component, load_recipe, shipped_recipes

PLUGIN = '''
from __future__ import annotations
from typing import Annotated
from pydantic import PositiveInt
from torch import Tensor
from loopkit.components.carry import Carry
from loopkit.loop import Step
from loopkit.registry import AtMost, register

@register("carry", "picky")
class Picky(Carry):
    """Builds only at multiples of 48 channels."""
    def __init__(self, width: int, *, rank: Annotated[PositiveInt, AtMost("width")] = 1) -> None:
        super().__init__()
        if width % 48 or rank > width:
            raise ValueError(f"picky: {width} channels")
    def forward(self, s: Tensor, read, step: Step) -> Tensor:
        return s
'''


def recipe(*overrides: str, plugins: tuple[Path, ...] = ()) -> Recipe:
    return load_recipe("wikitext_44m_norm", overrides=overrides, plugins=plugins)


@pytest.mark.parametrize(
    ("width", "heads", "narrowed"),
    [(512, 8, 64), (768, 12, 96), (2048, 16, 64), (2048, 32, 64), (5280, 55, 110), (32, 2, 32), (96, 32, 96)],
)
def test_narrow_width_is_a_multiple_of_heads(width: int, heads: int, narrowed: int) -> None:
    spec = component("attention", {"type": "causal", "heads": heads}, width=width)
    result = narrow_width(width, [spec])
    assert result == narrowed
    assert width % result == 0
    assert result % heads == 0
    assert result // heads % 2 == width // heads % 2, "rotations pair the channels of a head"


def test_key_heads_stay_divisors() -> None:
    model = surrogate(recipe("model.block.attention={heads: 16, kv_heads: 4}", "model.position=rope")).model
    attention = model.core.blocks[0].attention
    assert (attention.heads, attention.kv_heads, model.width) == (16, 4, 64)


def test_width_respects_component_bounds(tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(PLUGIN)
    result = recipe(
        "model.width=768", "model.block.attention.heads=8", "model.carry={type: picky, rank: 100}", plugins=(file,)
    )
    assert narrow(result.model).width == 128


def test_fixed_width_component_keeps_the_width(tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(PLUGIN)
    result = recipe("model.width=768", "model.block.attention.heads=8", "model.carry=picky", plugins=(file,))
    assert surrogate(result).model.width == 768


def test_layers_shrink_unless_a_tie_counts_them() -> None:
    assert narrow(recipe("model.prelude=3", "model.coda=1").model).core.options["layers"] == 2
    small = narrow(recipe("model.prelude=3", "model.coda=1").model)
    assert (small.prelude.layers, small.coda.layers) == (2, 1)
    tied = recipe("model.tie={core.blocks.7.mlp: core.blocks.6.mlp}")
    assert narrow(tied.model).core.options["layers"] == 8


def test_other_values_equal_the_recipe() -> None:
    result = recipe("train.schedule={type: poisson, mean: 6, max: 30}", "train.backprop=3", "model.injection=add")
    subject = surrogate(result)
    assert (subject.loops.total, subject.loops.backprop, subject.model.max_loops) == (6, 3, 30)
    assert subject.model.section.injection == result.model.injection
    assert next(subject.model.parameters()).dtype == torch.float64
    assert not subject.model.training
    assert torch.equal(subject.batch.labels[:, :-1], subject.batch.tokens[:, 1:])


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_has_a_surrogate(name: str) -> None:
    subject = surrogate(load_recipe(name))
    assert subject.model.width < 200
    assert sum(p.numel() for p in subject.model.parameters()) < 2e6
