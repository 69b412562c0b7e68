"""Into which files the tensors of an exported folder go, in which types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

from loopkit.interop.source_snapshot import Keepsake
from loopkit.interop.tensor_file import ITEM, Header
from loopkit.interop.weight_map import Shape

SHARD = 5_000_000_000
"""Bytes of a weight file, where nothing else is given."""

TYPES = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
"""Types as the command line says them."""

WORDS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
"""Types as configurations say them."""


def as_kept(keepsake: Keepsake, theirs: Mapping[str, Shape], dtype: str | None) -> dict[str, Header] | None:
    """The layout that the folder had; None where the model's tensors are no longer those.

    Args:
        keepsake: What the run keeps of the folder.
        theirs: Name and shape of every tensor there is to write, those that are copies included.
        dtype: Write all of them in this type instead.
    """
    had = {name: entry for shard in keepsake.shards.values() for name, entry in shard.header.entries.items()}
    if any(theirs.get(name) != entry.shape for name, entry in had.items()):
        return None
    headers = {file: shard.header for file, shard in keepsake.shards.items()}
    return headers if dtype is None else {file: _in_type(header, dtype) for file, header in headers.items()}


def new(theirs: Mapping[str, Shape], dtype: str, limit: int = SHARD) -> dict[str, Header]:
    """A layout of one file, or of several where there is too much for one.

    Args:
        theirs: Name and shape of every tensor, in order.
        dtype: Their type.
        limit: Bytes of a file; a tensor that is larger has a file of its own.
    """
    groups: list[dict[str, tuple[str, Shape]]] = [{}]
    room = limit
    for name, shape in theirs.items():
        size = prod(shape) * ITEM[dtype]
        if size > room and groups[-1]:
            groups.append({})
            room = limit
        groups[-1][name] = (dtype, shape)
        room -= size
    names = [f"model-{i:05d}-of-{len(groups):05d}.safetensors" for i in range(1, len(groups) + 1)]
    if len(groups) == 1:
        names = ["model.safetensors"]
    return {file: Header.of(group, {"format": "pt"}) for file, group in zip(names, groups, strict=True)}


def index(headers: Mapping[str, Header]) -> dict[str, Any] | None:
    """What ``model.safetensors.index.json`` says of several files; None for one."""
    if len(headers) == 1:
        return None
    where = {name: file for file, header in headers.items() for name in header.entries}
    total = sum(header.size for header in headers.values())
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}


def _in_type(header: Header, dtype: str) -> Header:
    metadata = json.loads(header.text).get("__metadata__", {})
    return Header.of({name: (dtype, entry.shape) for name, entry in header.entries.items()}, metadata)
