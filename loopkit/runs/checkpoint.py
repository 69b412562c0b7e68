"""Checkpoint folders: complete or absent, and checked before they are believed.

``checkpoints/step-00000600/manifest.json`` names every other file with its size and SHA-256. It is written last, into a
folder that gets its name only when everything is on disk; so a folder with a name was once whole, and the manifest
tells whether it still is.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.runs.atomic import publish_folder, remove_folder, write_json

FORMAT = 1
MANIFEST = "manifest.json"

# what lies in the folder, for whoever reads or writes one
WEIGHTS = "weights.safetensors"
OBJECTIVE = "objective.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
RESOLVED = "resolved.yaml"
TOKENIZER = "tokenizer"


class CheckpointProblem(ValueError):
    """A checkpoint that is missing or damaged; the message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that claims to be the state of a run after so many optimizer steps."""

    path: Path
    step: int

    def problem(self) -> str | None:
        """Why this checkpoint cannot be trusted, naming the file, or None where every byte is as it was written."""
        manifest = self.path / MANIFEST
        try:
            listed: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
            if listed["format"] != FORMAT:
                return f"{manifest}: format {listed['format']}, this loopkit reads {FORMAT}"
            files = listed["files"].items()
        except FileNotFoundError:
            return f"{manifest} is missing"
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"{manifest} is damaged"
        for name, facts in files:
            path = self.path / name
            if not path.is_file():
                return f"{path} is missing"
            if path.stat().st_size != facts["size"]:
                return f"{path} has {path.stat().st_size} bytes, {facts['size']} were written"
            if _sha256(path) != facts["sha256"]:
                return f"{path} does not have the content that was written (SHA-256 differs)"
        return None

    def check(self) -> Checkpoint:
        """This checkpoint, if it is whole.

        Raises:
            CheckpointProblem: If it is not, naming the file.
        """
        if problem := self.problem():
            raise CheckpointProblem(f"this checkpoint is damaged: {problem}")
        return self


def checkpoints(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a folder, oldest first; what is half-written has no name yet and does not count."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := re.fullmatch(r"step-(\d+)", path.name):
            found.append(Checkpoint(path, int(match[1])))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that is whole.

    Returns:
        The checkpoint, and what is wrong with each newer one: the caller must tell the user.

    Raises:
        CheckpointProblem: If there is none, or none is whole. There is never a silent fresh start.
    """
    damaged: list[str] = []
    for checkpoint in reversed(checkpoints(folder)):
        problem = checkpoint.problem()
        if problem is None:
            return checkpoint, damaged
        damaged.append(problem)
    if damaged:
        raise CheckpointProblem("no checkpoint is whole: " + "; ".join(damaged))
    raise CheckpointProblem(f"there is no checkpoint in {folder}; start anew under another name with --name")


def begin_checkpoint(folder: Path, step: int) -> Path:
    """An empty folder to fill; it is no checkpoint until it is published."""
    partial = folder / f".step-{step:08d}.partial"
    remove_folder(partial)
    partial.mkdir(parents=True)
    return partial


def publish_checkpoint(partial: Path, step: int, keep: int) -> Checkpoint:
    """Write the manifest, give the folder its name, and remove the oldest beyond ``keep``.

    Args:
        partial: The filled folder of ``begin_checkpoint``.
        step: Optimizer steps done.
        keep: How many of the newest stay, this one included; >= 1.
    """
    files = {
        str(path.relative_to(partial)): {"size": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(partial.rglob("*"))
        if path.is_file()
    }
    write_json(partial / MANIFEST, {"format": FORMAT, "step": step, "files": files})
    mode = (partial / MANIFEST).stat().st_mode
    for name in files:  # safetensors writes files that only their owner may read
        (partial / name).chmod(mode)
    final = partial.parent / f"step-{step:08d}"
    publish_folder(partial, final)
    # a newer one here is damaged, or this run would have gone on from it: it counts for nothing, and stays as it is
    for old in [checkpoint for checkpoint in checkpoints(partial.parent) if checkpoint.step <= step][:-keep]:
        remove_folder(old.path)
    return Checkpoint(final, step)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
