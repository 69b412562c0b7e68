"""A looped model of eight channels on a few hundred tokens, built the way recipes build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loopkit.data import Prepared, prepare
from loopkit.evaluation import Conditions, ModelSource, Result, TrainedDepths
from loopkit.evaluation.result import build_row
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import Recipe, load_recipe
from tests.overriding import latest

TEXT = "\n\n".join(
    f"The {noun} of the {place} was {adjective}, and its {noun}s were {number} in number."
    for noun in ("tower", "river", "council")
    for place in ("north", "island")
    for adjective, number in (("old", "four"), ("quiet", "ninety"))
)


@dataclass(frozen=True)
class Case:
    """A model with the data to evaluate it on."""

    recipe: Recipe
    model: LoopedModel
    prepared: Prepared


@pytest.fixture(scope="session")
def make_case(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Callable[..., Case]:
    """Build a case from ``--set`` texts."""
    folder = tmp_path_factory.mktemp("text")
    for split in ("train", "validation"):
        (folder / f"{split}.txt").write_text(TEXT)

    def make(*overrides: str, seed: int = 1, **build: Any) -> Case:
        recipe = load_recipe(
            root / "recipes" / "wikitext_44m_raw.yaml",
            profiles=["smoke"],
            overrides=latest(
                f"data.source={{type: text, path: {folder}}}",
                "model.width=8",
                "evaluate.max_tokens=null",
                *overrides,
            ),
        )
        prepared = prepare(recipe.data, cache=folder / "cache", splits=["validation"])
        model = build_model(
            recipe.model,
            vocabulary=prepared.tokenizer.size,
            max_length=recipe.data.length,
            max_loops=4,
            seed=seed,
            **build,
        )
        return Case(recipe, model, prepared)

    return make


_CONDITIONS = Conditions(
    split="validation",
    slice="all of it",
    data="f00d",
    tokenizer={"type": "bytes", "size": 256},
    dtype="fp32",
    device="cpu",
    protocol="non_overlapping",
    window=8,
    stride=8,
    batch=2,
    read_as="depth",
    tokens_scored=15,
    words=4,
    bytes=15,
)
_RESULT = Result(
    origin=ModelSource(run="a_run", recipe="a", recipe_hash="0", checkpoint="step-1", step=1),
    conditions=_CONDITIONS,
    trained=TrainedDepths(1, 4, 2.5),
    core_calls=8,
    batches=1,
    passes="one",
    depths=[build_row(1, TrainedDepths(1, 4, 2.5), {"loss": 1.0})],
)


@pytest.fixture
def result() -> Result:
    """Possible results of an evaluation at depth 1."""
    return _RESULT
