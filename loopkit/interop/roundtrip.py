"""Whether a published form can represent a model: it is written as a configuration, read back, and compared.

The comparison covers everything of a run that changes what the exported model computes: the ``model`` section, and the
loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.schedule import Schedule
from loopkit.errors import UserError
from loopkit.interop.architectures import Form, ParsedConfig
from loopkit.interop.config import Config
from loopkit.recipe import Recipe, recipe_of
from loopkit.recipe.difference import differences

IN_TRAINING_ONLY = frozenset({"init", "dropout", "out_dropout"})
"""Options that do not change what a trained model computes; a published form need not have them."""


class NotRepresentable(UserError):
    """A published form cannot represent a model; the message names every component that differs."""


@dataclass(frozen=True)
class LoopRange:
    """The loops of a run.

    Args:
        min: Fewest loops of a training step.
        max: Most loops of a training step.
        mean: Mean of training, rounded: the loops that the exported model runs by default.
    """

    min: int
    max: int
    mean: int

    @classmethod
    def of(cls, recipe: Recipe) -> LoopRange:
        """The loops that a recipe trains."""
        schedule: Schedule = recipe.train.schedule.build()
        return cls(*schedule.bounds, mean=max(round(schedule.mean), 1))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a published form leaves out."""
        if self.min == self.max:
            return ()
        return (f"the published form has no range of loops: by default it runs {self.mean}, the mean of training",)

    def differences(self, form: Form, loops: int) -> list[str]:
        """Explain why a configuration with this many loops does not represent the run; empty if it does."""
        trained = str(self.max) if self.min == self.max else f"{self.min} to {self.max}"
        if loops != self.mean:
            return [f"train.schedule: {trained} loops in the run, {loops} in {form.name}"]
        if not form.any_loops and self.max != loops:
            return [f"train.schedule: {trained} loops in the run, always {loops} in {form.name}"]
        return []


def parse(form: Form, config: Mapping[str, Any]) -> ParsedConfig:
    """Read a configuration of this form without rejecting keys."""
    return form.read(Config(config, ignore=config))


def read_back(form: Form, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resolved ``model`` section that a configuration stands for, as plain values."""
    values = {
        "loopkit": 2,
        "data": {"source": "python_docs", "tokenizer": "bytes"},
        "model": dict(parse(form, config).model),
        "objective": {},
        "train": {"steps": 1, "batch": 1},
        "evaluate": {},
    }
    return dict(recipe_of(values, Path("config.yaml")).values["model"])


def model_differences(model: Mapping[str, Any], loops: LoopRange, form: Form, config: Mapping[str, Any]) -> list[str]:
    """List where a configuration stands for another model, a line for each component.

    Args:
        model: The resolved ``model`` section as plain values, ``vocabulary`` filled in.
        loops: The loops that it was trained for.
        form: The form of the configuration.
        config: The configuration.
    """
    lines = [
        "model.{}: {} in the run, {} in {}".format(change.key, *change.format_values(), form.name)
        for change in differences(_canonical(model), _canonical(read_back(form, config)))
        if IN_TRAINING_ONLY.isdisjoint(change.path)
    ]
    return lines + loops.differences(form, parse(form, config).loops)


def _canonical(model: Mapping[str, Any]) -> dict[str, Any]:
    """Write out the sizes of a section that follow from others, so that equal models are equal."""
    section = dict(model)
    block = section["block"] = dict(model["block"])
    width = model["width"]
    if "attention" in block and "heads" in block["attention"]:
        attention = block["attention"] = dict(block["attention"])
        attention["kv_heads"] = attention.get("kv_heads") or attention["heads"]
        attention["head_size"] = attention.get("head_size") or width // attention["heads"]
    if "mlp" in block and "ratio" in block["mlp"]:
        mlp = block["mlp"] = dict(block["mlp"])
        mlp["hidden"] = mlp.get("hidden") or round(mlp.pop("ratio") * width)
        mlp.pop("ratio", None)
    return section
