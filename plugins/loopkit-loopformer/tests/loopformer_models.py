"""Small models, from this package's own recipe at its smallest size."""

from __future__ import annotations

import torch

from loopkit import load_recipe
from loopkit.loop import Batch
from loopkit.model import LoopedModel, build_model

VOCABULARY, LENGTH, LOOPS = 23, 12, 4


def build(*overrides: str, seed: int | None = 0, device: str = "cpu") -> LoopedModel:
    """The smoke model of the recipe, its weights large enough to matter."""
    recipe = load_recipe("wikitext_loopformer", ["smoke"], ["model.init={type: normal, std: 0.2}", *overrides])
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": LOOPS}
    return build_model(recipe.model, **sizes, seed=seed, device=device).eval()


def trained(model: LoopedModel, seed: int = 1) -> LoopedModel:
    """The model with factors that are no longer zero, as after some training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".modulation." in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def tokens() -> Batch:
    """Three random sequences; each token's label is the next one."""
    found = torch.randint(0, VOCABULARY, (3, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return Batch.of(found[:, :-1].contiguous(), found[:, 1:].contiguous())
