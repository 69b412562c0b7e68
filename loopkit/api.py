"""loopkit from Python, in three calls: a recipe, its model, a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopkit.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    import torch

    from loopkit.components.tokenizer import Tokenizer
    from loopkit.model import LoopedModel

__all__ = ["build", "load", "load_recipe"]


def build(
    recipe: Recipe | str | Path,
    *,
    vocabulary: int | None = None,
    profiles: Sequence[str] = (),
    overrides: Sequence[str] = (),
    device: torch.device | str | None = None,
) -> LoopedModel:
    """Build the model of a recipe with its first weights, as training would.

    Args:
        recipe: A recipe, its path, or the name of a shipped one.
        vocabulary: Number of tokens; None fits the recipe's tokenizer, for which the data must be there.
        profiles: Applied where ``recipe`` is a path or name.
        overrides: The same, as ``key.path=value``.
        device: Where it goes; ``"meta"`` holds shapes and no numbers.

    Raises:
        RecipeError: If the recipe has problems.
    """
    from loopkit.components.schedule import Schedule
    from loopkit.data import prepare
    from loopkit.model import build_model

    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, profiles, overrides)
    if vocabulary is None:
        vocabulary = prepare(recipe.data, splits=("train",)).tokenizer.size
    schedule: Schedule = recipe.train.schedule.build()
    return build_model(
        recipe.model,
        vocabulary=vocabulary,
        max_length=recipe.data.length,
        max_loops=schedule.bounds[1],
        mean_loops=schedule.mean,
        seed=recipe.seed,
        device=device,
    )


def load(run: str | Path | None = None, *, step: int | None = None) -> tuple[LoopedModel, Tokenizer, Recipe]:
    """Open a trained run.

    Args:
        run: Its folder or name under ``runs/``; None takes the newest.
        step: Which checkpoint, by optimizer step; None takes the newest whole one.

    Returns:
        The model in evaluation mode, its tokenizer, and the resolved recipe.
    """
    from loopkit.evaluation.trained_run import open_run

    opened = open_run(run, step=step)
    return opened.model, opened.tokenizer, opened.recipe
