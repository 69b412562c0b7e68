"""A published checkpoint folder becomes a run that can be measured, started from, and given back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError, file_errors
from loopkit.interop.architectures import Form, Reading, form_of, with_derived
from loopkit.interop.config import Config
from loopkit.interop.published import Published, PublishedError
from loopkit.interop.retrofit import Retrofit, retrofitted
from loopkit.interop.source_snapshot import FOLDER, keep, write_layout
from loopkit.interop.tables import keep_tables, wrong_tables
from loopkit.interop.tensor_file import Header, write_tensors
from loopkit.interop.tokenizer import choose_tokenizer
from loopkit.interop.weight_map import Links, Shape
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import Recipe, recipe_of, yaml_text
from loopkit.runs import Checkpoint, RunExists, RunFolder, write_json, write_text
from loopkit.runs.atomic import publish_folder, remove_folder
from loopkit.runs.checkpoint import RESOLVED, TOKENIZER, WEIGHTS, begin_checkpoint, publish_checkpoint
from loopkit.runs.provenance import describe, now, origins

LONGEST = 2048
"""Tokens of a window that an imported model is measured on, where it could take more."""

RETROFITTED_LOOPS = 4
"""Loops that a retrofitted model is measured at, until it is trained for others."""


@dataclass(frozen=True)
class Imported:
    """A published model as a run.

    Args:
        folder: The run.
        checkpoint: Its weights.
        form: Name of the published form.
        parameters: How many there are, shared ones counted once.
        tokenizer: What it is called in the recipe.
        loops: Loops that it runs unless told otherwise.
        left_out: Files of the folder that were not taken along.
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
    """Make a run of a checkpoint folder in Hugging Face form. Weights are copied as they are, byte by byte.

    Args:
        source: The folder.
        folder: Where the run goes; it appears whole or not at all.
        tokenizer: A tokenizer.json, a folder with one, or the name of a tokenizer of loopkit; None takes the folder's
            own, or token numbers as text where it has none.
        overrides: Changes to the recipe that the run gets, such as ``data.source.type=wikitext``.
        ignore: Keys of ``config.json`` that may be there although loopkit does not know what they do.
        retrofit: Which layers of a model of one stack become prelude, core and coda of a looped one, such as
            ``prelude=4,core=8,coda=4``; None leaves it as it is.
        command: Command line for the record; None: this process's.

    Raises:
        RunExists: If the run is there.
        PublishedError: If the folder is not whole, or its tensors are not those of its configuration.
        TensorFileError: If a weight file is damaged.
        UnknownForm: If loopkit does not know models of this form.
        ConfigError: If the configuration says something that a recipe cannot.
        RecipeError: If the overrides do not suit.
    """
    if folder.path.exists():
        raise RunExists(f"{folder.path} already exists; give the imported model another folder with --out")
    if changed := [text for text in overrides if text.strip().startswith("model")]:
        raise UserError(f"--set {changed[0]}: the model is what config.json says; set what it is measured on and how")
    published = Published.open(source)
    form = form_of(published.config)
    config = Config(published.config, ignore)
    reading = form.read(config)
    config.finish()
    if retrofit is not None:
        _one_stack(form, reading)
    work = RunFolder(folder.path.with_name(f".{folder.name}.partial"))
    remove_folder(work.path)
    try:
        with file_errors(folder.path, "written"):
            work.path.mkdir(parents=True)
        files = keep(published, work)
        own = f"{work.imported.name}/{FOLDER}"
        found = choose_tokenizer(published, work.path / own, own, tokenizer, int(reading.model["vocabulary"]))
        chosen, built = found.plain, found.tokenizer
        values = _recipe(published, reading, chosen)
        recipe = recipe_of(values, folder.recipe.with_name(f"{folder.name}.yaml"), overrides)
        model = on_meta(recipe, built)
        plain = plain_model(recipe, model)
        there = {name: entry.shape for name, entry in published.tensors.items()}
        links = with_derived(form, form.links(plain, length=reading.length), plain, there)
        if retrofit is not None:
            layers = int(reading.model["core"])
            reading, links = retrofitted(reading, links, Retrofit.parse(retrofit, layers), RETROFITTED_LOOPS)
            values = _recipe(published, reading, chosen)
            recipe = recipe_of(values, folder.recipe.with_name(f"{folder.name}.yaml"), overrides)
            model = on_meta(recipe, built)
        _check(published, links)
        step, weights = _write_checkpoint(work, published, links, model, built, recipe)
        keep_tables(published, links.tables, work.imported)
        hashes = write_layout(published, work, form=form.name, files=files, weights=weights)
        _write_run(work, recipe, values, command, form, published, hashes, model)
        publish_folder(work.path, folder.path)
    except BaseException:
        remove_folder(work.path)
        raise
    count = sum(parameter.numel() for parameter in model.parameters())
    checkpoint = Checkpoint(folder.checkpoint(0), step)
    name, notes = recipe.data.tokenizer.name, reading.notes + found.notes
    return Imported(folder, checkpoint, form.name, count, name, reading.loops, published.left_out, notes)


def _one_stack(form: Form, reading: Reading) -> None:
    stages = [reading.model.get(stage) for stage in ("prelude", "coda")]
    if any(stages) or reading.loops != 1:
        raise UserError(f"--retrofit: a model of form {form.name} is looped already; it turns one stack into a loop")


def on_meta(recipe: Recipe, tokenizer: Tokenizer) -> LoopedModel:
    """The model of a recipe, without numbers."""
    most = recipe.train.schedule.build().bounds[1]
    sizes = {"vocabulary": tokenizer.size, "max_length": recipe.data.length, "max_loops": most}
    return build_model(recipe.model, **sizes, device="meta")


def plain_model(recipe: Recipe, model: LoopedModel) -> dict[str, Any]:
    """The resolved ``model`` section as plain values, with the number of rows that the token table has."""
    return dict(recipe.values["model"]) | {"vocabulary": model.vocabulary}


def shapes_of(model: LoopedModel) -> dict[str, Shape]:
    """Name and shape of every tensor that our weights file holds: shared ones once, under their first name."""
    first: dict[int, tuple[str, Shape]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(id(tensor), (name, tuple(tensor.shape)))
    return dict(first.values())


def _recipe(published: Published, reading: Reading, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "loopkit": 2,
        "description": f"The model of the folder {published.path.resolve().name}, imported.",
        "data": {
            "source": {"type": "python_docs"},  # text that is everywhere; what to measure on is the user's to choose
            "tokenizer": dict(tokenizer),
            "length": min(reading.length, LONGEST),
        },
        "model": dict(reading.model),
        "objective": dict(reading.objective),
        "train": {
            "steps": 1,
            "batch": 1,
            "schedule": {"type": "fixed", "loops": reading.loops},
            "start_from": "checkpoints/step-00000000",
        },
        "evaluate": {"depths": f"1-{reading.loops}", "tasks": {"perplexity": {}}},
    }


def _check(published: Published, links: Links) -> None:
    """See that the folder holds the tensors that its configuration tells of, and no other."""
    wanted, there = links.theirs, published.tensors
    problems = [f"missing: {name}" for name in wanted if name not in there]
    known = {*wanted, *links.copies, *links.tables, *links.dropped}
    problems += [f"unknown to this form: {name}" for name in there if name not in known]
    problems += wrong_tables(published, links.tables)
    problems += [
        f"{name}: the file has {list(there[name].shape)}, config.json says {list(shape)}"
        for name, shape in wanted.items()
        if name in there and there[name].shape != shape
    ]
    for link in links.links:
        types = {there[name].dtype for name, _ in link.theirs if name in there}
        if len(types) > 1:
            names = ", ".join(name for name, _ in link.theirs)
            problems.append(f"{names}: types {', '.join(sorted(types))}; loopkit keeps them in one tensor of one type")
    problems += [
        f"{copy}: config.json ties it to {first}, and it differs"
        for copy, first in links.copies.items()
        if copy in there and first in there and not _equal(published, copy, first)
    ]
    if problems:
        raise PublishedError(f"{published.path}: its tensors do not fit its config.json\n  " + "\n  ".join(problems))


def _equal(published: Published, one: str, other: str) -> bool:
    a, b = published.tensors[one], published.tensors[other]
    return (a.dtype, a.shape) == (b.dtype, b.shape) and np.array_equal(published.read(one), published.read(other))


def _write_checkpoint(
    work: RunFolder, published: Published, links: Links, model: LoopedModel, tokenizer: Tokenizer, recipe: Recipe
) -> tuple[int, str]:
    """Weights and tokenizer as the checkpoint of a run that has not trained; gives the SHA-256 of the weights."""
    shapes = shapes_of(model)
    unfit = links.unfit(shapes)
    assert not unfit, unfit
    pieces = links.of_ours(shapes)
    types = {name: published.tensors[found[0].name].dtype for name, found in pieces.items()}
    types |= dict.fromkeys(links.made, "F32")
    header = Header.of({name: (types[name], shape) for name, shape in shapes.items()}, {"format": "pt"})

    def content(name: str) -> Iterator[np.ndarray]:
        if name in links.made:
            return iter([np.ascontiguousarray(links.made[name]).reshape(-1).view(np.uint8)])
        return (published.read(piece.name, piece.start, piece.stop) for piece in pieces[name])

    partial = begin_checkpoint(work.checkpoints, 0)
    weights = write_tensors(partial / WEIGHTS, header, content)
    tokenizer.save(partial / TOKENIZER)
    write_text(partial / RESOLVED, recipe.to_yaml())
    return publish_checkpoint(partial, 0).step, weights


def _write_run(
    work: RunFolder,
    recipe: Recipe,
    values: Mapping[str, Any],
    command: Sequence[str] | None,
    form: Form,
    published: Published,
    hashes: Mapping[str, str],
    model: LoopedModel,
) -> None:
    """The files that make the folder a run; the resolved recipe last, because a folder with one counts as a run."""
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
        "sha256": dict(hashes),
        "tensors": len(published.tensors),
        "left_out": list(published.left_out),
    }
    facts["parameters"] = {"unique": sum(parameter.numel() for parameter in model.parameters())}
    work.evaluations.mkdir()
    write_json(work.provenance, facts)
    write_text(work.recipe, yaml_text(dict(values)))
    write_text(work.resolved, recipe.to_yaml())
