"""loopkit's own form: the ``model`` section in ``config.json``, native names, and modelling code in the folder.

Tensors are called ``model.`` and their native name, the output matrix ``lm_head``. The code is ``interop/templates``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loopkit.interop.architectures import Form, ParsedConfig
from loopkit.interop.config import Config
from loopkit.interop.templates import layers, parts
from loopkit.interop.templates.blocks import BLOCKS, CORES, PLACEMENTS
from loopkit.interop.templates.slots import count_slots
from loopkit.interop.weight_map import WeightMap, renamed
from loopkit.model import build_model
from loopkit.recipe import recipe_of

TABLES: dict[str, Mapping[str, Any]] = {
    "position": layers.POSITIONS,
    "block": BLOCKS,
    "attention": layers.ATTENTIONS,
    "mlp": layers.MLPS,
    "norm": layers.NORMS,
    "placement": PLACEMENTS,
    "core": CORES,
    "start": parts.STARTS,
    "injection": parts.INJECTIONS,
    "carry": parts.CARRIES,
    "readout": parts.READOUTS,
    "gate": parts.GATES,
}
"""Kind to the components that the modelling code implements."""

SLOTS = {"qk_norm": "norm", "of": "carry"}
"""Options that hold a component of a kind with another name."""


class SelfContained(Form):
    """``LoopkitForCausalLM``."""

    name = "loopkit"
    model_type = "loopkit"
    classes = ("LoopkitForCausalLM",)

    def read(self, config: Config) -> ParsedConfig:
        section = config.get("recipe_model")
        if not isinstance(section, dict):
            config.reject("recipe_model is missing: it must be the model section of a recipe; export the run again")
            section = {"width": 1, "block": {"attention": {"heads": 1}}}
        loops, schedule = config.count("num_loops", 1), config.get("schedule")
        derived = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
        config.ignore_keys("tie_word_embeddings", *derived)
        return ParsedConfig(
            model=section | {"vocabulary": config.count("vocab_size")},
            objective={"supervision": "terminal"},
            loops=loops,
            length=config.count("max_position_embeddings"),
            max_loops=config.count("max_loops", loops),
            schedule=schedule if isinstance(schedule, dict) else None,
        )

    def write(self, model: Mapping[str, Any], *, loops: int, max_loops: int, length: int) -> dict[str, Any]:
        attention = model["block"].get("attention", {})
        heads = attention.get("heads", 1)
        return {
            "architectures": list(self.classes),
            "auto_map": {
                "AutoConfig": "configuration_loopkit.LoopkitConfig",
                "AutoModel": "modeling_loopkit.LoopkitModel",
                "AutoModelForCausalLM": "modeling_loopkit.LoopkitForCausalLM",
            },
            "head_dim": attention.get("head_size") or model["width"] // heads,
            "hidden_size": model["width"],
            "max_loops": max_loops,
            "max_position_embeddings": length,
            "model_type": self.model_type,
            "num_attention_heads": heads,
            "num_hidden_layers": count_slots(model, loops) if "layers" in model["core"] else 0,
            "num_key_value_heads": attention.get("kv_heads") or heads,
            "num_loops": loops,
            "recipe_model": {key: value for key, value in model.items() if key != "init"},
            "tie_word_embeddings": model["head"]["tied"],
            "vocab_size": model["vocabulary"],
        }

    def weight_map(self, model: Mapping[str, Any], *, length: int, max_loops: int) -> WeightMap:
        values = {
            "loopkit": 2,
            "data": {"source": "python_docs", "tokenizer": "bytes"},
            "model": dict(model),
            "objective": {},
            "train": {"steps": 1, "batch": 1},
            "evaluate": {},
        }
        config = recipe_of(values, Path("config.yaml")).model
        native = build_model(
            config, vocabulary=model["vocabulary"], max_length=length, max_loops=max_loops, device="meta"
        )
        names: dict[int, list[str]] = {}
        state = native.state_dict(keep_vars=True)
        for name, tensor in state.items():
            names.setdefault(id(tensor), []).append(name)
        sharers = tuple(f"{sharer}." for sharer in model["tie"])
        groups = []
        for first, *more in names.values():
            own = next(name for name in (first, *more) if not name.startswith(sharers))
            groups.append(renamed(published_name(own), tuple(state[first].shape), first))
        aliases = {"lm_head.weight": "model.embedding.tokens.weight"} if model["head"]["tied"] else {}
        return WeightMap(tuple(groups), aliases)


def published_name(native: str) -> str:
    """Return the name of a tensor in the folder."""
    return native.replace("head.", "lm_head.", 1) if native.startswith("head.") else f"model.{native}"


def unsupported_components(model: Mapping[str, Any]) -> list[str]:
    """Explain what of a resolved ``model`` section the modelling code does not implement, a line for each reason."""
    problems = [
        f"{path}: {kind} {name!r} has no modelling code; it has {', '.join(TABLES[kind])}"
        for path, kind, name in _components(model, "model")
        if name not in TABLES[kind]
    ]
    for sharer, owner in model.get("tie", {}).items():
        if {sharer.rpartition(".")[2], owner.rpartition(".")[2]} & {"weight", "bias"}:
            problems.append(f"model.tie: {sharer} shares a parameter of {owner}; only whole modules can be shared")
    return problems


def _components(value: Any, path: str, kind: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, kind and name of every component of a section; parts of one without modelling code are left out."""
    if isinstance(value, list):
        for i, part in enumerate(value):
            yield from _components(part, f"{path}[{i}]", kind)
    if not isinstance(value, Mapping):
        return
    if kind in TABLES and "type" in value:
        yield path, kind, value["type"]
        if value["type"] not in TABLES[kind]:
            return
    for key, part in value.items():
        if key != "init":
            yield from _components(part, f"{path}.{key}", SLOTS.get(key, str(key)))
