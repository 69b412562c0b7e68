"""The keys that the installed DeepSpeed reads, as ``loopkit/recipe/deepspeed_keys.json`` holds them.

    python -m tests.recipe.deepspeed_keys

writes the table anew. Sections that are pydantic models are read from their JSON schema; of the others, and of the top
level, DeepSpeed reads a dictionary that records the requested keys.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import BaseModel

import loopkit.recipe

TABLE = Path(loopkit.recipe.__file__).parent / "validation" / "deepspeed_keys.json"
PROBE = "no_such_key"
JSON = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    type(None): "null",
    dict: "object",
    list: "array",
}
NAMES = {"ge": "min", "gt": "above", "le": "max"}
BATCH = {"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}


class Asked(dict):  # type: ignore[type-arg]
    """A dictionary that records the requested keys."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.keys_asked: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.keys_asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        self.keys_asked.add(str(key))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.keys_asked.add(str(key))
        return super().get(key, default)

    def keys(self) -> Any:
        watcher = self

        class Keys:
            def __contains__(self, key: object) -> bool:
                return key in watcher

            def __iter__(self) -> Iterator[Any]:
                return iter(list(dict.keys(watcher)))

        return Keys()

    def __copy__(self) -> Asked:
        return self


def read_by(settings: Asked) -> tuple[list[type[BaseModel]], str]:
    """Put a configuration through DeepSpeed; the models that received ``PROBE``, and what it was refused with."""
    from deepspeed.runtime import config, config_utils

    models: list[type[BaseModel]] = []
    refusal = ""
    plain = config_utils.DeepSpeedConfigModel.__init__

    def watched(self: Any, strict: bool = False, **data: Any) -> None:
        if PROBE in data:
            models.append(type(self))
        plain(self, strict, **data)

    config_utils.DeepSpeedConfigModel.__init__ = watched
    try:
        # some keys are read only if there is a process group
        with (
            mock.patch.object(config.dist, "get_rank", return_value=0),
            mock.patch.object(config.dist, "get_world_size", return_value=1),
        ):
            config.DeepSpeedConfig(settings)
    except Exception as error:
        refusal = str(error)
    finally:
        config_utils.DeepSpeedConfigModel.__init__ = plain
    return models, refusal


def table() -> dict[str, Any]:
    """The table of the installed DeepSpeed."""
    import deepspeed

    top = Asked(BATCH)
    read_by(top)
    result = {key: {} if key in BATCH else section_of((key,)) for key in sorted(top.keys_asked)}
    return {
        "version": deepspeed.__version__,
        "keys": {key: value for key, value in result.items() if value is not None},
    }


def section_of(path: tuple[str, ...]) -> dict[str, Any] | None:
    """What DeepSpeed reads below a key; None if it has removed the key."""
    section = Asked({PROBE: 1})
    config: Any = section
    for key in reversed(path[1:]):
        config = Asked({key: config})
    models, refusal = read_by(Asked(BATCH | {path[0]: config}))
    if "has been removed" in refusal:
        return None
    if models:
        return model_keys(models[0])
    names = sorted(section.keys_asked - {PROBE})
    if names in ([], ["enabled"]):  # a section that is off is not read any further: it may have any key
        return {}
    return {"keys": {name: section_of((*path, name)) or {} for name in names}}


def model_keys(model: type[BaseModel]) -> dict[str, Any]:
    """A section from its model; a key with an alias goes by both names."""
    keys: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        value = value_of(field.annotation)
        for marker in field.metadata:
            value |= {NAMES[bound]: getattr(marker, bound) for bound in NAMES if hasattr(marker, bound)}
        keys |= {key: value for key in (name, field.alias) if key}
    return {"keys": keys}


def value_of(annotation: Any) -> dict[str, Any]:
    """What one key accepts: ``types``, ``enum``, ``min``, ``above``, ``max``, and ``keys`` of a section."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {"types": ["object"]} | model_keys(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"enum": [member.value for member in annotation]}
    if annotation in JSON:
        return {"types": [JSON[annotation]]}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [value_of(part) for part in typing.get_args(annotation)]
        if all(parts):
            every = sorted({kind for part in parts for kind in part.get("types", ())})
            return {key: value for part in parts for key, value in part.items()} | ({"types": every} if every else {})
    return {}


def text() -> str:
    """The text of the table."""
    result = table()
    lines = [f"  {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in result["keys"].items()]
    return f'{{"version": {json.dumps(result["version"])}, "keys": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    TABLE.write_text(text())
