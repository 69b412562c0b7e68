"""Small models from the recipe of this package."""

from __future__ import annotations

import torch

from loopkit import load_recipe
from loopkit.loop import Batch
from loopkit.model import LoopedModel, build_model

VOCABULARY, LENGTH, LOOPS = 23, 12, 3


def build(*overrides: str, max_loops: int = LOOPS, seed: int | None = 0, device: str = "cpu") -> LoopedModel:
    """Build the smoke model of the recipe with large weights, so that routing differs between tokens."""
    large = ["model.init={type: normal, std: 0.2}", "model.core.alpha=0.5"]
    recipe = load_recipe("wikitext_mor", ["smoke"], [*large, *overrides])
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": max_loops}
    model = build_model(recipe.model, **sizes, seed=seed, device=device).eval()
    if device == "cpu" and seed is not None:
        with torch.no_grad():
            model.core.router.weight.mul_(40)
    return model


def by_tokens(*overrides: str, **options: object) -> LoopedModel:
    """Build the same model with token choice."""
    return build("model.core.router=token_choice", "model.core.keep=null", *overrides, **options)  # type: ignore[arg-type]


def tokens() -> Batch:
    """Three random sequences; each token's label is the next one."""
    ids = torch.randint(0, VOCABULARY, (3, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return Batch.of(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
