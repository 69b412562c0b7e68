"""Whether a published form can say a model: it is written as a configuration, read back, and compared.

Compared is everything of a run that changes what the exported model computes: the ``model`` section, and the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.schedule import Schedule
from loopkit.errors import UserError
from loopkit.interop.architectures import Form, Reading
from loopkit.interop.config import Config
from loopkit.recipe import Recipe, recipe_of

IN_TRAINING_ONLY = frozenset({"init", "dropout", "out_dropout"})
"""Options that change no number of a trained model; a published form need not have them."""

_ABSENT = object()


class NotRepresentable(UserError):
    """A model that a published form has no words for; names every component at fault."""


@dataclass(frozen=True)
class LoopRange:
    """The loops of a run.

    Args:
        least: Fewest loops of a training step.
        most: Most loops of a training step.
        usual: Loops that the exported model runs unless told otherwise: the mean of training.
    """

    least: int
    most: int
    usual: int

    @classmethod
    def of(cls, recipe: Recipe) -> LoopRange:
        """The loops that a recipe trains."""
        schedule: Schedule = recipe.train.schedule.build()
        return cls(*schedule.bounds, usual=max(round(schedule.mean), 1))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a published form leaves out of them."""
        if self.least == self.most:
            return ()
        return (
            f"the published form has no range of loops: it runs {self.usual}, the mean of training, unless told "
            "otherwise",
        )

    def difference(self, form: Form, runs: int) -> list[str]:
        """Why a configuration that runs so many loops does not say these; empty where it does."""
        here = str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
        if runs != self.usual:
            return [f"train.schedule: {here} loops here, and {form.name} has {runs}"]
        if not form.any_loops and self.most != runs:
            return [f"train.schedule: {here} loops here, and {form.name} always runs {runs}"]
        return []


def reading_of(form: Form, config: Mapping[str, Any]) -> Reading:
    """What a configuration of this form says; it need not be one that loopkit can honour."""
    return form.read(Config(config, ignore=config))


def read_back(form: Form, config: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved ``model`` section that a configuration stands for, as plain values."""
    reading = reading_of(form, config)
    values = {
        "loopkit": 2,
        "data": {"source": "python_docs", "tokenizer": "bytes"},
        "model": dict(reading.model),
        "objective": {},
        "train": {"steps": 1, "batch": 1},
        "evaluate": {},
    }
    return dict(recipe_of(values, Path("config.yaml")).values["model"])


def differences(model: Mapping[str, Any], loops: LoopRange, form: Form, config: Mapping[str, Any]) -> list[str]:
    """Where a configuration says another model than the one at hand, a line for each component; empty where none.

    Args:
        model: Its resolved ``model`` section as plain values, ``vocabulary`` filled in.
        loops: The loops that it was trained for.
        form: The form of the configuration.
        config: The configuration.
    """
    ours, theirs = _canonical(model), _canonical(read_back(form, config))
    return [
        f"model.{'.'.join(path)}: {_shown(mine)} here, and {form.name} has {_shown(other)}"
        for path, mine, other in _differences(ours, theirs, ())
    ] + loops.difference(form, reading_of(form, config).loops)


def _differences(ours: Any, theirs: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if not (isinstance(ours, Mapping) and isinstance(theirs, Mapping)):
        if ours != theirs:
            yield path, ours, theirs
        return
    if ours.get("type") != theirs.get("type"):  # its options follow from it
        yield path, ours.get("type", _ABSENT), theirs.get("type", _ABSENT)
        return
    for key in dict.fromkeys([*ours, *theirs]):
        if key not in IN_TRAINING_ONLY:
            yield from _differences(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), (*path, key))


def _canonical(model: Mapping[str, Any]) -> dict[str, Any]:
    """The section with sizes that follow from others written out, so that equal models are equal."""
    found = dict(model)
    block = found["block"] = dict(model["block"])
    width = model["width"]
    if "attention" in block and "heads" in block["attention"]:
        attention = block["attention"] = dict(block["attention"])
        attention["kv_heads"] = attention.get("kv_heads") or attention["heads"]
        attention["head_size"] = attention.get("head_size") or width // attention["heads"]
    if "mlp" in block and "ratio" in block["mlp"]:
        mlp = block["mlp"] = dict(block["mlp"])
        mlp["hidden"] = mlp.get("hidden") or round(mlp.pop("ratio") * width)
        mlp.pop("ratio", None)
    return found


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)
