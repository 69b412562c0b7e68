"""Turn a published checkpoint folder into a run that can be evaluated, trained further and exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError, file_errors
from loopkit.interop.architectures import Form, ParsedConfig, form_of, with_buffers
from loopkit.interop.config import Config
from loopkit.interop.published import Published, PublishedError, sha256, tensor_errors
from loopkit.interop.retrofit import Retrofit, retrofit_model
from loopkit.interop.source_files import FOLDER, keep_buffers, keep_files
from loopkit.interop.tokenizer import choose_tokenizer
from loopkit.interop.weight_map import Shape, WeightMap
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import Recipe, recipe_of, yaml_text
from loopkit.runs import Checkpoint, RunExists, RunFolder, write_json, write_text
from loopkit.runs.atomic import publish_folder, remove_folder
from loopkit.runs.checkpoint import RESOLVED, TOKENIZER, WEIGHTS, begin_checkpoint, publish_checkpoint
from loopkit.runs.provenance import describe, now, origins

MAX_LENGTH = 2048
"""Most tokens of a window that an imported model is evaluated on."""

RETROFITTED_LOOPS = 4
"""Loops that a retrofitted model is evaluated at before it is trained."""


@dataclass(frozen=True)
class Imported:
    """A published model as a run.

    Args:
        folder: The run.
        checkpoint: Its weights.
        form: Name of the published form.
        parameters: Number of parameters, shared ones counted once.
        tokenizer: Its name in the recipe.
        loops: Loops that it runs by default.
        left_out: Files of the folder that were not copied.
        notes: What the user should know.
    """

    folder: RunFolder
    checkpoint: Checkpoint
    form: str
    parameters: int
    tokenizer: str
    loops: int
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def import_folder(
    source: Path,
    folder: RunFolder,
    *,
    tokenizer: str | None = None,
    overrides: Sequence[str] = (),
    ignore: Iterable[str] = (),
    retrofit: str | None = None,
    command: Sequence[str] | None = None,
) -> Imported:
    """Make a run of a checkpoint folder in Hugging Face form. Weights keep their values and types.

    Args:
        source: The folder.
        folder: The run to make; it appears complete or not at all.
        tokenizer: A tokenizer.json, a folder with one, or the name of a tokenizer of loopkit; None takes the folder's
            own, or token numbers as text if it has none.
        overrides: Changes to the run's recipe, such as ``data.source.type=wikitext``.
        ignore: Keys of ``config.json`` that are accepted although loopkit does not read them.
        retrofit: Which layers of a model of one stack become prelude, core and coda of a looped one, such as
            ``prelude=4,core=8,coda=4``; None keeps its structure.
        command: Command line for the provenance record; None takes that of this process.

    Raises:
        RunExists: If the run exists.
        PublishedError: If the folder is incomplete or damaged, or its tensors do not fit its configuration.
        UnknownForm: If loopkit does not read models of this form.
        ConfigError: If no recipe can represent the configuration.
        RecipeError: If the overrides are invalid.
    """
    if folder.path.exists():
        raise RunExists(f"{folder.path} already exists; give the imported model another folder with --out")
    if changed := [text for text in overrides if text.strip().startswith("model")]:
        raise UserError(f"--set {changed[0]}: config.json determines the model; set only keys of data and evaluate")
    published = Published.open(source)
    form = form_of(published.config)
    config = Config(published.config, ignore)
    parsed = form.read(config)
    config.raise_problems()
    if retrofit is not None:
        _check_single_stack(form, parsed)
    work = RunFolder(folder.path.with_name(f".{folder.name}.partial"))
    remove_folder(work.path)
    try:
        with file_errors(folder.path, "written"):
            work.path.mkdir(parents=True)
        files = keep_files(published, work)
        relative = f"{work.imported.name}/{FOLDER}"
        chosen = choose_tokenizer(published, files, relative, tokenizer, int(parsed.model["vocabulary"]))

        def compose() -> tuple[dict[str, Any], Recipe, LoopedModel]:
            values = _recipe_values(published, parsed, chosen.plain)
            recipe = recipe_of(values, folder.recipe.with_name(f"{folder.name}.yaml"), overrides)
            return values, recipe, meta_model(recipe, chosen.tokenizer)

        values, recipe, model = compose()
        plain = plain_model(recipe, model)
        stored = {name: info.shape for name, info in published.tensors.items()}
        weight_map = form.weight_map(plain, length=parsed.length, max_loops=model.max_loops)
        weight_map = with_buffers(form, weight_map, plain, stored)
        if retrofit is not None:
            layers = Retrofit.parse(retrofit, int(parsed.model["core"]))
            parsed, weight_map = retrofit_model(parsed, weight_map, layers, RETROFITTED_LOOPS)
            values, recipe, model = compose()
        _check_tensors(published, weight_map)
        step = _write_checkpoint(work, published, weight_map, model, chosen.tokenizer, recipe)
        keep_buffers(published, weight_map, work)
        _write_run(work, recipe, values, command, form, published, model)
        publish_folder(work.path, folder.path)
    except BaseException:
        remove_folder(work.path)
        raise
    return Imported(
        folder,
        Checkpoint(folder.checkpoint(0), step),
        form.name,
        _num_parameters(model),
        recipe.data.tokenizer.name,
        parsed.loops,
        published.left_out,
        parsed.notes + chosen.notes,
    )


def meta_model(recipe: Recipe, tokenizer: Tokenizer) -> LoopedModel:
    """Build the model of a recipe on the meta device, without numbers."""
    max_loops = recipe.train.schedule.build().bounds[1]
    sizes = {"vocabulary": tokenizer.size, "max_length": recipe.data.length, "max_loops": max_loops}
    return build_model(recipe.model, **sizes, device="meta")


def plain_model(recipe: Recipe, model: LoopedModel) -> dict[str, Any]:
    """The resolved ``model`` section as plain values, with the number of rows of the token table."""
    return dict(recipe.values["model"]) | {"vocabulary": model.vocabulary}


def native_shapes(model: LoopedModel) -> dict[str, Shape]:
    """Name and shape of every tensor of a weights file: shared ones once, under their first name."""
    first: dict[int, tuple[str, Shape]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(id(tensor), (name, tuple(tensor.shape)))
    return dict(first.values())


def _num_parameters(model: LoopedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _check_single_stack(form: Form, parsed: ParsedConfig) -> None:
    if parsed.loops != 1 or parsed.model.get("prelude") or parsed.model.get("coda"):
        raise UserError(f"--retrofit: a model of form {form.name} is looped already; give one with a single stack")


def _recipe_values(published: Published, parsed: ParsedConfig, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "loopkit": 2,
        "description": f"The model of the folder {published.path.resolve().name}, imported.",
        "data": {
            "source": {"type": "python_docs"},  # needs no download; --set chooses another
            "tokenizer": dict(tokenizer),
            "length": min(parsed.length, MAX_LENGTH),
        },
        "model": dict(parsed.model),
        "objective": dict(parsed.objective),
        "train": {
            "steps": 1,
            "batch": 1,
            "schedule": dict(parsed.schedule or {"type": "fixed", "loops": parsed.max_loops or parsed.loops}),
            "start_from": "checkpoints/step-00000000",
        },
        "evaluate": {"depths": f"1-{parsed.loops}", "tasks": {"perplexity": {}}},
    }


def _check_tensors(published: Published, weight_map: WeightMap) -> None:
    """Check that the folder holds exactly the tensors of its configuration.

    Raises:
        PublishedError: With every problem.
    """
    expected, stored = weight_map.published, published.tensors
    problems = [f"missing: {name}" for name in expected if name not in stored]
    problems += [f"unknown to this form: {name}" for name in stored if name not in weight_map.names]
    shapes = expected | {name: buffer.shape for name, buffer in weight_map.buffers.items()}
    wrong = [name for name, shape in shapes.items() if name in stored and stored[name].shape != shape]
    problems += [
        f"{name}: its shape is {list(stored[name].shape)}; config.json implies {list(shapes[name])}" for name in wrong
    ]
    problems += [
        f"{name}: its numbers are not those that config.json implies"
        for name, buffer in weight_map.buffers.items()
        if name in stored and name not in wrong and not buffer.matches(published.read(name))
    ]
    for group in weight_map.groups:
        types = {stored[name].dtype for name, _ in group.published if name in stored}
        if len(types) > 1:
            names = ", ".join(name for name, _ in group.published)
            problems.append(f"{names}: types {', '.join(sorted(types))}; loopkit keeps them in one tensor of one type")
    problems += [
        f"{alias}: config.json ties it to {first}, but their numbers differ"
        for alias, first in weight_map.aliases.items()
        if alias in stored and first in stored and not _is_equal(published, alias, first)
    ]
    if problems:
        raise PublishedError(f"{published.path}: its tensors do not fit its config.json\n  " + "\n  ".join(problems))


def _is_equal(published: Published, name: str, other: str) -> bool:
    a, b = published.read(name), published.read(other)
    return a.dtype == b.dtype and torch.equal(a, b)


def _write_checkpoint(
    work: RunFolder,
    published: Published,
    weight_map: WeightMap,
    model: LoopedModel,
    tokenizer: Tokenizer,
    recipe: Recipe,
) -> int:
    """Write weights and tokenizer as the checkpoint of a run that has not trained; return its step."""
    shapes = native_shapes(model)
    problems = weight_map.problems(shapes)
    assert not problems, problems
    partial = begin_checkpoint(work.checkpoints, 0)
    with tensor_errors(work.path, "written"):
        save_file(weight_map.to_native(published.read, shapes), partial / WEIGHTS, metadata={"format": "pt"})
    tokenizer.save(partial / TOKENIZER)
    write_text(partial / RESOLVED, recipe.to_yaml())
    return publish_checkpoint(partial, 0).step


def _write_run(
    work: RunFolder,
    recipe: Recipe,
    values: Mapping[str, Any],
    command: Sequence[str] | None,
    form: Form,
    published: Published,
    model: LoopedModel,
) -> None:
    """Write the files that make the folder a run; the resolved recipe last, because a folder with one is a run."""
    facts = describe(
        recipe=recipe.name,
        recipe_hash=recipe.hash,
        components=origins(recipe.specs.values()),
        torch={},
        command=command,
    )
    facts["sessions"][-1] |= {"ended": now(), "status": "imported", "to_step": 0}
    facts["imported"] = {
        "form": form.name,
        "folder": published.path.resolve().name,
        "name": published.config.get("_name_or_path"),
        "sha256": {
            path.name: sha256(path) for path in sorted(published.path.iterdir()) if path.name not in published.left_out
        },
        "tensors": len(published.tensors),
        "left_out": list(published.left_out),
    }
    facts["parameters"] = {"unique": _num_parameters(model)}
    work.evaluations.mkdir()
    write_json(work.provenance, facts)
    write_text(work.recipe, yaml_text(dict(values)))
    write_text(work.resolved, recipe.to_yaml())
