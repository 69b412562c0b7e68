"""Whether a published form can say a model: its section is written as a configuration, read back, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.interop.architectures import Form
from loopkit.interop.config import Config
from loopkit.recipe import recipe_of

IN_TRAINING_ONLY = frozenset({"init", "dropout", "out_dropout"})
"""Options that change no number of a trained model; a published form need not have them."""

_ABSENT = object()


class Unsayable(UserError):
    """A model that a published form has no words for; names every component at fault."""


def read_back(form: Form, config: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved ``model`` section that a configuration stands for, as plain values."""
    reading = form.read(Config(config, ignore=config))
    values = {
        "loopkit": 1,
        "data": {"source": "python_docs", "tokenizer": "bytes"},
        "model": dict(reading.model),
        "objective": {},
        "train": {"steps": 1, "batch": 1},
        "evaluate": {},
    }
    return dict(recipe_of(values, Path("config.yaml")).values["model"])


def differences(model: Mapping[str, Any], form: Form, config: Mapping[str, Any]) -> list[str]:
    """Where a configuration says another model than the one at hand, a line for each component; empty where none."""
    ours, theirs = _canonical(model), _canonical(read_back(form, config))
    return [
        f"model.{'.'.join(path)}: {_shown(mine)} here, and {form.name} has {_shown(other)}"
        for path, mine, other in _differences(ours, theirs, ())
    ]


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
