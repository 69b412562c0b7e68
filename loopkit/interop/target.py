"""What an exported folder is to hold, decided before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopkit.components.tokenizer import Tokenizer
from loopkit.interop import layout
from loopkit.interop.architectures import Form, forms, with_derived
from loopkit.interop.published import CONFIG, read_object
from loopkit.interop.roundtrip import LoopRange, NotRepresentable, differences, read_back, reading_of
from loopkit.interop.source_snapshot import Keepsake
from loopkit.interop.tensor_file import Header
from loopkit.interop.weight_map import Links, Shape
from loopkit.recipe import Recipe

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Target:
    """A folder to be.

    Args:
        form: Its form.
        links: Which tensor is which.
        headers: Its weight files by name.
        copied: Files that are copied as they are, by name.
        values: JSON files by name.
        notes: What the user should know.
        caveats: Where the published model computes something else than loopkit does; a folder that is given back
            unchanged has none that it had not before.
    """

    form: Form
    links: Links
    headers: Mapping[str, Header]
    copied: Mapping[str, Path] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """Types of its tensors."""
        return tuple(sorted({entry.dtype for header in self.headers.values() for entry in header.entries.values()}))


def reexport(keepsake: Keepsake, recipe: Recipe, model: Mapping[str, Any], dtype: str | None) -> Target:
    """The folder that a model came from, with the weights that it has now.

    Args:
        keepsake: What is kept of the folder.
        recipe: The run's recipe.
        model: Its resolved ``model`` section as plain values, ``vocabulary`` filled in.
        dtype: Write all tensors in this type; None keeps theirs.

    Raises:
        Unsayable: If the recipe has come to describe a model that the form cannot say.
        ValueError: If a kept file is missing or changed.
    """
    keepsake.check()
    form = forms()[keepsake.form]
    config, values, loops = read_object(keepsake.folder / CONFIG), {}, LoopRange.of(recipe)
    reading, notes = reading_of(form, config), list(loops.notes)
    length = max(reading.length, recipe.data.length)
    if differences(model, loops, form, config) or length != reading.length:
        before = form.write(read_back(form, config), loops=reading.loops, length=reading.length)
        after = form.write(model, loops=loops.usual, length=length)
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        config = config | changed
        _refuse(form, differences(model, loops, form, config))
        values[CONFIG] = config
        notes.append(f"config.json is not the imported one: {', '.join(changed)} changed with the recipe")
    if dtype is not None:
        config = config | {key: layout.WORDS[dtype] for key in ("dtype", "torch_dtype") if key in config}
        values[CONFIG] = config
    had = {name: entry.shape for shard in keepsake.shards.values() for name, entry in shard.header.entries.items()}
    links = with_derived(form, form.links(model, length=length), model, had)
    theirs = _with_copies(links)
    headers = layout.as_kept(keepsake, theirs, dtype)
    copied = {name: keepsake.folder / name for name in keepsake.sha256 if name not in values}
    if headers is None:
        headers = layout.new(_once(links), dtype or _one_type(keepsake))
        copied = {name: path for name, path in copied.items() if not name.endswith(".safetensors.index.json")}
        values |= _index(headers)
        notes.append("the tensors are no longer those of the imported folder, so its weight files are laid out anew")
    elif dtype is not None and len(headers) > 1:
        copied = {name: path for name, path in copied.items() if not name.endswith(".safetensors.index.json")}
        values |= _index(headers)
    return Target(form, links, headers, copied, values, tuple(notes), reading.notes)


def new_folder(recipe: Recipe, model: Mapping[str, Any], tokenizer: Tokenizer, dtype: str) -> Target:
    """A folder for a model that was never imported, in the first form that can say it.

    Args:
        recipe: The run's recipe.
        model: Its resolved ``model`` section as plain values, ``vocabulary`` filled in.
        tokenizer: The run's.
        dtype: Type of the tensors.

    Raises:
        Unsayable: If no form can, with what stands in the way of the nearest.
    """
    loops = LoopRange.of(recipe)
    said: dict[str, tuple[Form, dict[str, Any], list[str]]] = {}
    for name, form in forms().items():
        config = form.write(model, loops=loops.usual, length=recipe.data.length)
        said[name] = (form, config, differences(model, loops, form, config))
    form, config, wrong = min(said.values(), key=lambda item: len(item[2]))
    _refuse(form, wrong)
    config |= {"dtype": layout.WORDS[dtype]}
    ends = tokenizer.ends
    config |= {"bos_token_id": tokenizer.bos, "pad_token_id": tokenizer.pad}
    config |= {"eos_token_id": list(ends) if len(ends) > 1 else tokenizer.eos}
    links = form.links(model, length=recipe.data.length)
    headers = layout.new(_once(links), dtype)
    files = tokenizer.published()
    notes = list(loops.notes)
    if not files:
        notes.append(f"tokenizer '{recipe.data.tokenizer.name}' has no Hugging Face form: the folder has none")
    values = {CONFIG: dict(sorted(config.items()))} | files | _index(headers)
    return Target(form, links, headers, {}, values, tuple(notes), reading_of(form, config).notes)


def _refuse(form: Form, wrong: list[str]) -> None:
    if wrong:
        raise NotRepresentable(
            f"this model has no published form that loopkit writes; the nearest is {form.name}, which differs:\n  "
            + "\n  ".join(wrong)
        )


def _once(links: Links) -> dict[str, Shape]:
    return links.theirs | {name: table.shape for name, table in links.tables.items()}


def _with_copies(links: Links) -> dict[str, Shape]:
    found = links.theirs
    return _once(links) | {copy: found[first] for copy, first in links.copies.items()}


def _index(headers: Mapping[str, Header]) -> dict[str, Any]:
    found = layout.index(headers)
    return {} if found is None else {INDEX: found}


def _one_type(keepsake: Keepsake) -> str:
    """The type that most tensors of a folder have."""
    types = [entry.dtype for shard in keepsake.shards.values() for entry in shard.header.entries.values()]
    return max(set(types), key=types.count)
