"""The files of the folder that a run's model came from, kept in the run and merged into an export.

``runs/NAME/imported/folder/`` holds every file except the weights, ``imported/tables.safetensors`` the buffers of the
weight files. A run that starts from this one inherits both. The names are those of the first release, so that runs
imported earlier are exported in the same way; ``imported/layout.json``, which they also have, is not read.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from loopkit.errors import UserError, file_errors
from loopkit.interop.published import CONFIG, INDEX, Published, read_object, tensor_errors
from loopkit.interop.weight_map import WeightMap
from loopkit.runs import RunFolder

FOLDER, BUFFERS = "folder", "tables.safetensors"


@dataclass(frozen=True)
class SourceFiles:
    """What a run keeps of the imported folder.

    Args:
        config: Its ``config.json``.
        files: Path of every other file, by name.
        buffers: Stored tensors without weights, by name.
    """

    config: dict[str, Any]
    files: dict[str, Path]
    buffers: dict[str, Tensor]

    @classmethod
    def of(cls, run: RunFolder) -> SourceFiles | None:
        """Read what a run keeps; None if its model was not imported.

        Raises:
            UserError: If ``config.json`` is missing.
        """
        folder, buffers = run.imported / FOLDER, run.imported / BUFFERS
        if not run.imported.is_dir():
            return None
        if not (folder / CONFIG).is_file():
            raise UserError(f"{folder / CONFIG} is missing; put the published file back, or import the model again")
        files = {path.name: path for path in folder.iterdir() if path.name != CONFIG and not path.name.endswith(INDEX)}
        with tensor_errors(buffers, "read"):
            return cls(read_object(folder / CONFIG), files, load_file(buffers) if buffers.is_file() else {})


def keep_files(published: Published, run: RunFolder) -> Path:
    """Copy all files except the weights into a run; return their folder."""
    folder = run.imported / FOLDER
    folder.mkdir(parents=True)
    for name in published.files:
        with file_errors(folder / name, "written"):
            shutil.copyfile(published.path / name, folder / name)
    return folder


def keep_buffers(published: Published, weight_map: WeightMap, run: RunFolder) -> None:
    """Copy the stored buffers into a run, because another machine's cosines may differ in the last bit."""
    buffers = {name: published.read(name) for name in weight_map.buffers if name in published.tensors}
    if buffers:
        with tensor_errors(run.imported / BUFFERS, "written"):
            save_file(buffers, run.imported / BUFFERS, metadata={"format": "pt"})
