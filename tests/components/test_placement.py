"""Placements, by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.components.norm import Norm
from loopkit.components.placement import DeepNorm, Placement, Post, PostSandwich, Pre, PreSandwich, PreScaled
from loopkit.errors import UserError
from loopkit.loop import Step
from loopkit.model import build_model
from loopkit.recipe import component
from loopkit.registry import register
from loopkit.registry.catalog import catalog
from tests.components.steps import random, step_for
from tests.model.tiny import section, tiny


class Numbered(Norm):
    """A norm that can be told from its siblings, in the order in which they were made."""

    num_built = 0

    def __init__(self) -> None:
        super().__init__()
        Numbered.made += 1
        self.factor = 10.0**Numbered.made

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def f(x: Tensor) -> Tensor:
    return x + 1


CASES: list[tuple[Callable[[], Placement], Callable[[Tensor], Tensor], int]] = [
    (lambda: Pre(Numbered), lambda x: x + f(10 * x), 1),
    (lambda: Post(Numbered), lambda x: 10 * (x + f(x)), 1),
    (lambda: PreSandwich(Numbered), lambda x: x + 100 * f(10 * x), 2),
    (lambda: PostSandwich(Numbered), lambda x: 100 * (x + f(10 * x)), 2),
    (lambda: PreScaled(Numbered, 4, 9), lambda x: x + f(10 * x) / 12, 1),
    (lambda: PreScaled(Numbered, 4, 9, gain=3.0, layers="none"), lambda x: x + 0.75 * f(10 * x), 1),
    (lambda: PreScaled(Numbered, 4, 9, loops="inverse_sqrt", layers="none"), lambda x: x + f(10 * x) / 2, 1),
    (lambda: PreScaled(Numbered, 0, 0, gain=3.0), lambda x: x + f(10 * x), 1),
    (lambda: DeepNorm(Numbered, alpha=2.0), lambda x: 10 * (2 * x + f(x)), 1),
]


@pytest.mark.parametrize(("make", "formula", "norms"), CASES)
def test_each_is_its_formula(make: Callable[[], Placement], formula: Callable[[Tensor], Tensor], norms: int) -> None:
    Numbered.made = 0
    placement = make()
    assert Numbered.made == norms
    x = random(2, 3, 4, dtype=torch.float64)
    calls: list[Tensor] = []
    got = placement(x, lambda y: calls.append(y) or f(y), step_for(x))
    torch.testing.assert_close(got, formula(x))
    assert len(calls) == 1


@pytest.mark.parametrize("make", [make for make, _, _ in CASES])
def test_narrow_sublayer_preserves_stream_dtype(make: Callable[[], Placement]) -> None:
    x = random(2, 3, 4)
    placement = make()
    assert isinstance(placement, nn.Module)
    assert placement(x, lambda y: y.bfloat16(), step_for(x)).dtype == torch.float32


def deepnorm(**options: object) -> dict[str, object]:
    return {"type": "transformer", "attention": {"heads": 2}, "placement": {"type": "deepnorm", **options}}


def test_deepnorm_computes_alpha_from_depth() -> None:
    """DeepNet's (2 * depth)^(1/4), of the unrolled core; prelude and coda are plain post-norm."""
    model = tiny(prelude=1, core=5, coda=1, max_loops=8, block=deepnorm())
    assert [block.around_mlp.alpha for block in model.core.blocks] == pytest.approx([(2 * 5 * 8) ** 0.25] * 5)
    assert model.prelude.blocks[0].around_attention.alpha == model.coda.blocks[0].around_mlp.alpha == 1.0
    fixed = tiny(prelude=1, core=5, max_loops=8, block=deepnorm(alpha=3.0))
    assert {part.alpha for part in fixed.modules() if isinstance(part, DeepNorm)} == {3.0}


def test_deepnorm_without_depth_asks_for_alpha() -> None:
    with pytest.raises(UserError, match="passes no max_loops and num_layers; set alpha"):
        component("placement", "deepnorm").build(norm=Numbered)


@register("placement", "notes_its_place")
class NotesItsPlace(Placement):
    """Keeps what it is told of its place."""

    def __init__(self, norm: Callable[[], Norm], layer: int, max_loops: int, num_layers: int) -> None:
        super().__init__()
        self.norm = norm()
        self.told = (layer, max_loops, num_layers)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return x + f(self.norm(x))


@register("core", "unguessable")
class Unguessable(Core):
    """The number of its layers is no option called ``layers``."""

    def __init__(self, block: Callable[[], Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(3))

    def forward(self, u: Tensor, step: Step) -> Tensor:
        for block in self.blocks:
            u = block(u, step)
        return u


@pytest.mark.parametrize("core", [3, "unguessable"])
def test_placements_are_told_their_place(core: int | str) -> None:
    components = catalog(plugins=False).with_files([Path(__file__)])
    block = component("block", deepnorm() | {"placement": "notes_its_place"}, among=components, width=16)
    chosen = component("core", {"type": "stack", "layers": core} if isinstance(core, int) else core, among=components)
    plan = replace(section(prelude=2, coda=1), block=block, core=chosen)
    model = build_model(plan, vocabulary=5, max_length=4, max_loops=7, seed=0)
    told = [part.told for part in model.modules() if hasattr(part, "told")]
    places = [(0, 0, 0), (1, 0, 0), (2, 7, 3), (3, 7, 3), (4, 7, 3), (5, 0, 0)]
    assert sorted(told) == sorted(2 * places)
    assert model.core_layers == 3
