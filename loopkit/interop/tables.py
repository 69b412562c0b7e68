"""Tensors of a published folder that are no weights: checked on the way in, kept as they are, and given back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from loopkit.interop.cast import TYPES, cast
from loopkit.interop.published import Published
from loopkit.interop.tensor_file import Header, TensorEntry, TensorFile, write_tensors
from loopkit.interop.weight_map import DerivedTensor

FILE = "tables.safetensors"
"""Where a run keeps them, beside the layout of the weights."""

PRECISION = {"F64": 1e-4, "F32": 1e-4, "F16": 1e-2, "BF16": 2e-2}
"""How far a number may be from the one that we make, times 1 + its size."""


def wrong_tables(published: Published, tables: Mapping[str, DerivedTensor]) -> list[str]:
    """What is wrong with the tables that a folder holds; those that it leaves out are no matter."""
    problems = []
    for name, table in tables.items():
        entry = published.tensors.get(name)
        if entry is None:
            continue
        if entry.shape != table.shape:
            problems.append(f"{name}: the file has {list(entry.shape)}, config.json says {list(table.shape)}")
        elif _distance(published.read(name), entry, table) > PRECISION[entry.dtype]:
            problems.append(f"{name}: its numbers are not those that config.json tells of")
    return problems


def keep_tables(published: Published, tables: Mapping[str, DerivedTensor], folder: Path) -> None:
    """Copy the tables of a folder byte for byte, because another machine's cosines may differ in the last bit."""
    there = {name: published.tensors[name] for name in tables if name in published.tensors}
    if there:
        header = Header.of({name: (entry.dtype, entry.shape) for name, entry in there.items()}, {"format": "pt"})
        write_tensors(folder / FILE, header, lambda name: [published.read(name)])


def table_bytes(table: DerivedTensor, name: str, dtype: str, folder: Path | None) -> Iterator[np.ndarray]:
    """The bytes of a table in a type: the kept ones where they are of this model, else made anew.

    Args:
        table: What it is.
        name: What it is called.
        dtype: Type to write.
        folder: Where a run keeps those of the folder that it came from.
    """
    if folder is not None and (folder / FILE).is_file():
        kept = TensorFile(folder / FILE)
        entry = kept.header.entries.get(name)
        if entry is not None and (entry.shape, entry.dtype) == (table.shape, dtype):
            yield kept.read(name)
            return
    made = np.ascontiguousarray(table.make(), dtype=np.float32).reshape(-1).view(np.uint8)
    yield from cast(made, "F32", dtype)


def _distance(raw: np.ndarray, entry: TensorEntry, table: DerivedTensor) -> float:
    found = torch.from_numpy(raw.copy()).view(TYPES[entry.dtype]).double()
    made = torch.from_numpy(np.asarray(table.make(), dtype=np.float64).reshape(-1))
    distance = ((found - made).abs() / (1 + made.abs())).max().item()
    return distance if distance == distance else float("inf")
