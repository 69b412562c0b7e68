"""A checkpoint folder in Hugging Face form, as it lies on disk. Nothing that could run code is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from loopkit.errors import FileError, UserError, file_errors
from loopkit.interop.tensor_file import TensorEntry, TensorFile

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = ".safetensors.index.json"
NEVER_READ = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".onnx", ".gguf"})
"""Weights of other formats, most of them pickled: neither opened nor copied."""


class PublishedError(UserError):
    """A folder that is no checkpoint in Hugging Face form, or not a whole one; the message names the file."""


@dataclass(frozen=True)
class Published:
    """A folder with a configuration, weights and whatever else belongs to it.

    Args:
        path: The folder.
        config: Its ``config.json``.
        shards: Weight files by name, in order.
        kept: Names of the other files, which are copied as they are.
        left_out: Names of files and folders that are not.
    """

    path: Path
    config: Mapping[str, Any]
    shards: Mapping[str, TensorFile]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> Published:
        """Look at a folder, and see that its weights are whole; no tensor is read.

        Raises:
            PublishedError: If something is missing or does not fit.
            TensorFileError: If a weight file is damaged.
        """
        if not path.is_dir():
            what = "is a file" if path.is_file() else "does not exist"
            raise PublishedError(f"{path} {what}; give a folder with {CONFIG} and {SINGLE}")
        if not (path / CONFIG).is_file():
            raise PublishedError(f"{path} has no {CONFIG}; give the folder of a model in Hugging Face form")
        config = read_object(path / CONFIG)
        with file_errors(path, "read"):
            names = sorted(entry.name for entry in path.iterdir())
        listed = _listed(path, names)
        shards = {name: TensorFile(path / name) for name in listed}
        _check_index(path, listed, shards)
        files = [name for name in names if (path / name).is_file() and name not in shards]
        kept = [name for name in files if _belongs(name)]
        return cls(path, config, shards, tuple(kept), tuple(name for name in names if name not in {*kept, *shards}))

    @cached_property
    def tensors(self) -> dict[str, TensorEntry]:
        """Every tensor, by name."""
        return {name: entry for file in self.shards.values() for name, entry in file.header.entries.items()}

    @cached_property
    def _file_of(self) -> dict[str, TensorFile]:
        return {name: file for file in self.shards.values() for name in file.header.entries}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Bytes of the numbers ``start`` to ``stop`` of a tensor, as a view of its file."""
        return self._file_of[name].read(name, start, stop)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object.

    Raises:
        PublishedError: If it does not.
    """
    try:
        with file_errors(path, "read"):
            value = json.loads(path.read_text(encoding="utf-8"))
    except FileError:
        raise
    except ValueError as error:
        raise PublishedError(f"{path}: not JSON ({error}); get the file again") from error
    if not isinstance(value, dict):
        raise PublishedError(f"{path}: not a JSON object; get the file again")
    return value


def sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with file_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _belongs(name: str) -> bool:
    """Whether a file is part of the model: not hidden, not weights of another format."""
    suffixes = {f".{part}" for part in name.lower().split(".")[1:]}  # also pytorch_model.bin.index.json
    return not name.startswith(".") and not suffixes & NEVER_READ


def _listed(path: Path, names: list[str]) -> dict[str, set[str] | None]:
    """The weight files in order, each with the tensors that an index puts there; None where there is no index."""
    tensors = [name for name in names if name.endswith(".safetensors")]
    indices = [name for name in names if name.endswith(INDEX)]
    if len(indices) > 1:
        raise PublishedError(f"{path} has several indices ({', '.join(indices)}); keep the one of the model's weights")
    if indices:
        listed = _shards(path, indices[0])
        if strangers := [name for name in tensors if name not in listed]:
            raise PublishedError(f"{path}: {', '.join(strangers)} is not in {indices[0]}; keep one form of the weights")
        return dict(listed)
    if len(tensors) == 1:
        return {tensors[0]: None}
    if tensors:
        raise PublishedError(f"{path} has {len(tensors)} weight files and no index; get model{INDEX} too")
    if pickled := [name for name in names if {f".{part}" for part in name.split(".")[1:]} & NEVER_READ]:
        raise PublishedError(
            f"{path} has its weights in {pickled[0]}: loopkit reads safetensors alone, because other formats may run "
            "code when they are opened; get or make the safetensors form"
        )
    raise PublishedError(f"{path} has no weights: {SINGLE}, or shards with their index, are needed")


def _shards(path: Path, index: str) -> dict[str, set[str]]:
    record = read_object(path / index).get("weight_map")
    if not isinstance(record, dict) or not record:
        raise PublishedError(f"{path / index}: no weight_map; get the file again")
    shards: dict[str, set[str]] = {}
    for name, shard in record.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise PublishedError(f"{path / index}: {shard!r} is no name of a weight file in the folder")
        shards.setdefault(shard, set()).add(name)
    if missing := sorted(shard for shard in shards if not (path / shard).is_file()):
        raise PublishedError(f"{path}: {', '.join(missing)} is missing, which {index} names; get it too")
    return dict(sorted(shards.items()))


def _check_index(path: Path, listed: Mapping[str, set[str] | None], shards: Mapping[str, TensorFile]) -> None:
    for name, wanted in listed.items():
        there = set(shards[name].header.entries)
        if wanted is not None and wanted != there:
            absent, more = sorted(wanted - there), sorted(there - wanted)
            what = f"lacks {', '.join(absent)}" if absent else f"also holds {', '.join(more)}"
            raise PublishedError(f"{path / name}: by its index it {what}; get index and weights of one version")
