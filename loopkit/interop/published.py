"""A checkpoint folder in Hugging Face form, read from disk. Nothing that could run code is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from loopkit.errors import FileError, UserError, file_errors

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = ".safetensors.index.json"
OTHER_FORMATS = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".onnx", ".gguf"})
"""Weights of other formats, most of them pickled: neither opened nor copied."""

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
"""Types that tensors may have, by their names in a safetensors file; integers are counts in buffers."""


class PublishedError(UserError):
    """A folder is not a complete checkpoint in Hugging Face form; the message names the file."""


@dataclass(frozen=True)
class TensorInfo:
    """Type and shape of a stored tensor.

    Args:
        dtype: A key of ``DTYPES``.
        shape: Its sizes.
        file: The opened file that holds it.
    """

    dtype: str
    shape: tuple[int, ...]
    file: Any


@dataclass(frozen=True)
class Published:
    """A folder with a configuration, weights and other files of a model.

    Args:
        path: The folder.
        config: Its ``config.json``.
        shards: Names of the weight files, in order.
        tensors: Every stored tensor, by name.
        files: Names of the other files, which an import copies; the index of the weight files is not one of them.
        left_out: Names of files and folders that an import does not copy.
    """

    path: Path
    config: Mapping[str, Any]
    shards: tuple[str, ...]
    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]
    left_out: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> Published:
        """Open a folder and check that its weights are complete; no tensor is read.

        Raises:
            PublishedError: If something is missing, damaged or inconsistent.
        """
        if not path.is_dir():
            problem = "is a file" if path.is_file() else "does not exist"
            raise PublishedError(f"{path} {problem}; give a folder with {CONFIG} and {WEIGHTS}")
        if not (path / CONFIG).is_file():
            raise PublishedError(f"{path} has no {CONFIG}; give the folder of a model in Hugging Face form")
        config = read_object(path / CONFIG)
        with file_errors(path, "read"):
            names = sorted(entry.name for entry in path.iterdir())
        tensors: dict[str, TensorInfo] = {}
        shards = _list_shards(path, names)
        for shard, expected in shards.items():
            stored = _open_shard(path / shard)
            if expected is not None and expected != stored.keys():
                missing, extra = sorted(expected - stored.keys()), sorted(stored.keys() - expected)
                problem = f"lacks {', '.join(missing)}" if missing else f"also holds {', '.join(extra)}"
                raise PublishedError(
                    f"{path / shard}: compared with its index it {problem}; get index and weights of one version"
                )
            tensors |= stored
        candidates = [name for name in names if name not in shards and not name.endswith(INDEX)]
        files = tuple(name for name in candidates if (path / name).is_file() and _is_copied(name))
        return cls(path, config, tuple(shards), tensors, files, tuple(name for name in candidates if name not in files))

    def read(self, name: str) -> Tensor:
        """Read one tensor; it is mapped from its file."""
        info = self.tensors[name]
        with tensor_errors(self.path, "read"):
            return info.file.get_tensor(name)


@contextmanager
def tensor_errors(path: Path, action: str) -> Iterator[None]:
    """Turn errors of the file system and of safetensors into user errors.

    Args:
        path: The file or folder.
        action: What is tried: ``"read"`` or ``"written"``.

    Raises:
        FileError: If the system refuses.
        PublishedError: If safetensors refuses: a damaged file, a full disk.
    """
    try:
        with file_errors(path, action):
            yield
    except SafetensorError as error:
        remedy = "get the file again" if action == "read" else "check the disk"
        raise PublishedError(f"{path} cannot be {action} as safetensors: {error}; {remedy}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object.

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
    """Compute the SHA-256 of a file."""
    with file_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_shard(path: Path) -> dict[str, TensorInfo]:
    with tensor_errors(path, "read"):
        file = safe_open(path, framework="pt")
        stored = {}
        for name in file.keys():  # noqa: SIM118
            view = file.get_slice(name)
            stored[name] = TensorInfo(view.get_dtype(), tuple(view.get_shape()), file)
    for name, info in stored.items():
        if info.dtype not in DTYPES:
            raise PublishedError(
                f"{path}: {name!r} has type {info.dtype}. loopkit reads {', '.join(DTYPES)}; convert a quantised model "
                "to one of these"
            )
    return stored


def _is_copied(name: str) -> bool:
    """Whether a file is part of the model: not hidden, and not weights of another format."""
    return not name.startswith(".") and not _has_other_format(name)


def _has_other_format(name: str) -> bool:
    return bool({f".{part}" for part in name.lower().split(".")[1:]} & OTHER_FORMATS)  # any: model.bin.index.json


def _list_shards(path: Path, names: list[str]) -> dict[str, set[str] | None]:
    """List the weight files in order, each with the tensors that the index assigns to it; None without an index."""
    weights = [name for name in names if name.endswith(".safetensors")]
    indices = [name for name in names if name.endswith(INDEX)]
    if len(indices) > 1:
        raise PublishedError(
            f"{path} has several indices ({', '.join(indices)}); keep only that of the model's weights"
        )
    if indices:
        shards = _read_index(path, indices[0])
        if extra := [name for name in weights if name not in shards]:
            raise PublishedError(f"{path}: not in {indices[0]}: {', '.join(extra)}; keep one form of the weights")
        return dict(shards)
    if len(weights) == 1:
        return {weights[0]: None}
    if weights:
        raise PublishedError(f"{path} has {len(weights)} weight files and no index; download model{INDEX} too")
    if pickled := [name for name in names if _has_other_format(name)]:
        raise PublishedError(
            f"{path} has its weights in {pickled[0]}: loopkit reads only safetensors, because other formats may run "
            "code when they are opened; get the safetensors form, or convert the weights"
        )
    raise PublishedError(f"{path} has no weights; add {WEIGHTS}, or shards with their index")


def _read_index(path: Path, index: str) -> dict[str, set[str]]:
    weight_map = read_object(path / index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise PublishedError(f"{path / index}: it has no weight_map; download the file again")
    shards: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise PublishedError(f"{path / index}: {shard!r} is not the name of a weight file in the folder")
        shards.setdefault(shard, set()).add(name)
    if missing := sorted(shard for shard in shards if not (path / shard).is_file()):
        raise PublishedError(
            f"{path}: missing weight files that {index} names: {', '.join(missing)}; download them too"
        )
    return dict(sorted(shards.items()))
