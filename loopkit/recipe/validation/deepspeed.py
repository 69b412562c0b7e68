"""Which keys of a DeepSpeed configuration a recipe may write, and which values they take. No DeepSpeed is imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

from loopkit.recipe.node import Node, Path
from loopkit.registry.schema import Leaf, Option, Schema

TABLE = FilePath(__file__).with_name("deepspeed_keys.json")
"""What DeepSpeed reads; made by ``python -m tests.recipe.deepspeed_keys``, and compared with the installed one."""

OWNED_KEYS: dict[str, str] = {
    "train_batch_size": "train.batch",
    "train_micro_batch_size_per_gpu": "train.micro_batch",
    "gradient_accumulation_steps": "train.batch and train.micro_batch",
    "gradient_clipping": "train.clip",
    "optimizer": "train.optimizer",
    "scheduler": "train.lr",
    "fp16": "train.precision",
    "bf16": "train.precision",
    "bfloat16": "train.precision",
    "torch_autocast": "train.precision",
    "amp": "train.precision",
    "elasticity": "train.batch",
    "autotuning": "train.micro_batch",
    "managed_gradient_accumulation": "train.micro_batch",
    "gradient_allreduce_op": "train.batch",
    "steps_per_print": "train.log_every",
}
"""Keys that loopkit writes itself, and the recipe setting that decides each."""

Section = Mapping[str, Any]
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}
WORDS = {"integer": "an integer", "number": "a number", "boolean": "true or false", "string": "text", "object": "a map"}


@cache
def deepspeed_keys() -> Section:
    """Return the top-level keys with what each accepts: ``keys`` of a section, ``types``, ``enum`` and bounds."""
    keys: Section = json.loads(TABLE.read_text(encoding="utf-8"))["keys"]
    return keys


def unknown_keys(node: Node, path: Path) -> Iterator[tuple[Path, str, Node, Schema]]:
    """Yield unknown keys at every level: path of the map, key, value, and the options of the map."""
    yield from _unknown(node, path, {"keys": deepspeed_keys()})


def wrong_values(node: Node, path: Path) -> Iterator[tuple[Path, Node, str]]:
    """Yield values that DeepSpeed refuses: path, value, and what is wrong."""
    yield from _wrong(node, path, {"keys": deepspeed_keys()})


def _unknown(node: Node, path: Path, accepts: Section) -> Iterator[tuple[Path, str, Node, Schema]]:
    if "keys" not in accepts or not isinstance(node.value, dict):
        return
    options = {name: Option(name, Leaf(Any)) for name in accepts["keys"]}
    schema = Schema("section", path[-1], path[-1], options, (), {}, "", TABLE, 0)
    for key, item in node.value.items():
        if key in options:
            yield from _unknown(item, (*path, key), accepts["keys"][key])
        else:
            yield path, key, item, schema


def _wrong(node: Node, path: Path, accepts: Section) -> Iterator[tuple[Path, Node, str]]:
    value = node.value
    types = accepts.get("types", ["object"] if "keys" in accepts else [])
    if isinstance(value, dict) and "keys" in accepts:
        for key, item in value.items():
            if key in accepts["keys"]:
                yield from _wrong(item, (*path, key), accepts["keys"][key])
    elif not _fits(value, types, accepts):
        yield path, node, f"must be {_described(types, accepts)}, not {json.dumps(node.plain())[:60]}"


def _fits(value: Any, types: list[str], accepts: Section) -> bool:
    if "enum" in accepts and not isinstance(value, bool) and value in accepts["enum"]:
        return True
    if not types and "enum" not in accepts:
        return True
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        value = int(value)
    if not any(isinstance(value, TYPES[name]) and (name == "boolean") >= isinstance(value, bool) for name in types):
        return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    above, least, most = (accepts.get(name) for name in ("above", "min", "max"))
    return (above is None or value > above) and (least is None or value >= least) and (most is None or value <= most)


def _described(types: list[str], accepts: Section) -> str:
    words = [json.dumps(value) for value in accepts.get("enum", ())] + [WORDS.get(name, name) for name in types]
    limits = {"above": ">", "min": ">=", "max": "<="}
    bounds = " and ".join(f"{sign} {accepts[name]}" for name, sign in limits.items() if name in accepts)
    return f"{' or '.join(words)} {bounds}".strip()
