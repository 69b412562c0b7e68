"""What an exported folder will hold, decided before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopkit.components.tokenizer import Tokenizer
from loopkit.interop.architectures import Form, form_of, published_forms, with_buffers
from loopkit.interop.published import CONFIG
from loopkit.interop.roundtrip import LoopRange, NotRepresentable, model_differences, parse, read_back
from loopkit.interop.source_files import SourceFiles
from loopkit.interop.weight_map import WeightMap
from loopkit.recipe import Recipe


@dataclass(frozen=True)
class ExportPlan:
    """A folder to write.

    Args:
        form: Its form.
        config: Its ``config.json``.
        weight_map: Its tensors.
        copied: Files to copy, by name.
        objects: Further JSON files, by name.
        texts: Further text files, by name.
        notes: What the user should know.
        caveats: Where the published model computes something else than loopkit does.
        changed_keys: Keys of ``config.json`` that differ from the imported one; None if the run was not imported.
    """

    form: Form
    config: Mapping[str, Any]
    weight_map: WeightMap
    copied: Mapping[str, Path] = field(default_factory=dict)
    objects: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    changed_keys: tuple[str, ...] | None = None


def plan_update(source: SourceFiles, recipe: Recipe, model: Mapping[str, Any]) -> ExportPlan:
    """Plan the folder that a model came from, with the run's weights and what its recipe changed.

    Keys of ``config.json`` that loopkit does not read are kept.

    Args:
        source: What is kept of the folder.
        recipe: The run's recipe.
        model: Its resolved ``model`` section as plain values, ``vocabulary`` filled in.

    Raises:
        NotRepresentable: If the form cannot represent the model of the recipe.
    """
    form, loops = form_of(source.config), LoopRange.of(recipe)
    parsed, notes = parse(form, source.config), list(loops.notes)
    length = max(parsed.length, recipe.data.length)
    changes: dict[str, Any] = {}
    max_loops = parsed.max_loops or loops.max
    if model_differences(model, loops, form, source.config) or (length, loops.max) != (parsed.length, max_loops):
        section = read_back(form, source.config)
        before = form.write(section, loops=parsed.loops, max_loops=max_loops, length=parsed.length)
        after = form.write(model, loops=loops.mean, max_loops=loops.max, length=length)
        changes = {key: value for key, value in after.items() if before.get(key) != value}
        _check(form, model_differences(model, loops, form, source.config | changes))
        notes.append(f"config.json differs from the imported one in {', '.join(changes)}, as the recipe does")
    stored = {name: tuple(tensor.shape) for name, tensor in source.buffers.items()}
    weight_map = with_buffers(form, form.weight_map(model, length=length, max_loops=loops.max), model, stored)
    return ExportPlan(
        form,
        source.config | changes,
        weight_map,
        copied=source.files,
        notes=tuple(notes),
        caveats=parsed.notes,
        changed_keys=tuple(changes),
    )


def plan_new(recipe: Recipe, model: Mapping[str, Any], tokenizer: Tokenizer, name: str | None = None) -> ExportPlan:
    """Plan a folder in a published form, without modelling code.

    Args:
        recipe: The run's recipe.
        model: Its resolved ``model`` section as plain values, ``vocabulary`` filled in.
        tokenizer: The run's.
        name: The form; None takes the first that can represent the model.

    Raises:
        NotRepresentable: If the form cannot represent it, or none can, with the differences to the nearest.
    """
    loops = LoopRange.of(recipe)
    candidates: list[tuple[Form, dict[str, Any], list[str]]] = []
    for form in published_forms().values():
        if name not in (None, form.name):
            continue
        config = form.write(model, loops=loops.mean, max_loops=loops.max, length=recipe.data.length)
        candidates.append((form, config, model_differences(model, loops, form, config)))
    form, config, problems = min(candidates, key=lambda candidate: len(candidate[2]))
    _check(form, problems)
    config |= {"dtype": "float32"} | special_tokens(tokenizer)
    files, notes = tokenizer.published(), list(loops.notes)
    if not files:
        notes.append(f"tokenizer '{recipe.data.tokenizer.name}' has no Hugging Face form, so the folder has none")
    return ExportPlan(
        form,
        dict(sorted(config.items())),
        form.weight_map(model, length=recipe.data.length, max_loops=loops.max),
        objects={name: value for name, value in files.items() if name != CONFIG},
        notes=tuple(notes),
        caveats=parse(form, config).notes,
    )


def special_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the keys of a configuration that name tokens."""
    ends = tokenizer.ends
    return {
        "bos_token_id": tokenizer.bos,
        "pad_token_id": tokenizer.pad,
        "eos_token_id": list(ends) if len(ends) > 1 else tokenizer.eos,
    }


def _check(form: Form, problems: list[str]) -> None:
    if problems:
        raise NotRepresentable(
            f"no published form can represent this model. The nearest is {form.name}, which differs:\n  "
            + "\n  ".join(problems)
        )
