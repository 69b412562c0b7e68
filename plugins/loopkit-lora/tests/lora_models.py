"""Small models from the recipe of this package."""

from __future__ import annotations

import torch

from loopkit import load_recipe
from loopkit.loop import Batch
from loopkit.model import LoopedModel, build_model

VOCABULARY, LENGTH, LOOPS = 23, 12, 3


def build(*overrides: str, max_loops: int = LOOPS, seed: int | None = 0, device: str = "cpu") -> LoopedModel:
    """Build the smoke model of the recipe with large weights."""
    recipe = load_recipe("wikitext_lora", ["smoke"], ["model.init={type: normal, std: 0.2}", *overrides])
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": max_loops}
    return build_model(recipe.model, **sizes, seed=seed, device=device).eval()


def trained(model: LoopedModel, seed: int = 1) -> LoopedModel:
    """Make the updates non-zero, as after some training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".b") and ".differences." in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def tokens() -> Batch:
    """Three random sequences; each token's label is the next one."""
    ids = torch.randint(0, VOCABULARY, (3, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return Batch.of(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
