"""Checkpoint folders: complete or absent, and checked before they are believed.

``checkpoints/step-00000600/manifest.json`` names every other file with its size and SHA-256. It is written last, into a
folder that gets its name only when everything is on disk; so a folder with a name was once whole, and the manifest
tells whether it still is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.runs.atomic import json_text, publish_folder, remove_folder, sync_folder, write_text

FORMAT = 1
MANIFEST = "manifest.json"

# what lies in the folder, for whoever reads or writes one
WEIGHTS = "weights.safetensors"
OBJECTIVE = "objective.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
RESOLVED = "resolved.yaml"
TOKENIZER = "tokenizer"


class CheckpointProblem(UserError):
    """A checkpoint that is missing or damaged; the message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """The folder of a checkpoint, which may be incomplete or damaged."""

    path: Path
    step: int

    def problem(self) -> str | None:
        """Why this checkpoint cannot be trusted, naming the file, or None where every byte is as it was written."""
        manifest = self.path / MANIFEST
        try:
            files = self._listed()
        except FileNotFoundError:
            return f"{manifest} is missing"
        except CheckpointProblem as problem:
            return str(problem)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"{manifest} is damaged"
        for name, facts in files.items():
            path = self.path / name
            try:
                if not path.is_file():
                    return f"{path} is missing"
                if path.stat().st_size != facts["size"]:
                    return f"{path} has {path.stat().st_size} bytes, {facts['size']} were written"
                if _sha256(path) != facts["sha256"]:
                    return f"{path} does not have the content that was written (SHA-256 differs)"
            except OSError as error:
                return f"{path} cannot be read: {error.strerror}"
        return None

    def holds(self, name: str) -> bool:
        """Whether a file was written with this checkpoint; files added later do not count."""
        return name in self._listed()

    def _listed(self) -> dict[str, dict[str, Any]]:
        """The files of the manifest, once it is found to be, byte for byte, what loopkit writes for this step."""
        manifest = self.path / MANIFEST
        text = manifest.read_text(encoding="utf-8")
        listed: dict[str, Any] = json.loads(text)
        if listed["format"] != FORMAT:
            raise CheckpointProblem(f"{manifest}: format {listed['format']}, this loopkit reads {FORMAT}")
        own = listed.pop("sha256", None)  # the first manifests had none
        if set(listed) != {"format", "step", "files"} or text != _manifest_text(listed, signed=own is not None):
            raise CheckpointProblem(f"{manifest} is damaged")
        if listed["step"] != self.step:
            raise CheckpointProblem(f"{manifest} is of step {listed['step']}, its folder of step {self.step}")
        files: dict[str, dict[str, Any]] = listed["files"]
        home = self.path.resolve()
        for name, facts in files.items():
            if set(facts) != {"size", "sha256"}:
                raise CheckpointProblem(f"{manifest} is damaged")
            if not (self.path / name).resolve().is_relative_to(home):
                raise CheckpointProblem(f"{manifest} lists {name}, which lies outside of the checkpoint")
        return files

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
        if (step := step_of(path)) is not None:
            found.append(Checkpoint(path, step))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def step_of(path: Path) -> int | None:
    """The optimizer step of a checkpoint by its name, or None where it is not called as one."""
    match = re.fullmatch(r"step-(\d+)", path.name)
    return int(match[1]) if match else None


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
    raise CheckpointProblem(f"there is no checkpoint in {folder}; start a new run with --name")


def begin_checkpoint(folder: Path, step: int) -> Path:
    """An empty folder to fill; not a checkpoint until it is published. Remains of earlier attempts are removed."""
    for left in folder.glob(".step-*") if folder.is_dir() else ():
        remove_folder(left)
    partial = partial_checkpoint(folder, step)
    partial.mkdir(parents=True)
    return partial


def partial_checkpoint(folder: Path, step: int) -> Path:
    """Where a checkpoint is filled."""
    return folder / f".step-{step:08d}.partial"


def publish_checkpoint(partial: Path, step: int) -> Checkpoint:
    """Write the manifest, and give the folder its name.

    Args:
        partial: The filled folder of ``begin_checkpoint``.
        step: Optimizer steps done.
    """
    files = {
        str(path.relative_to(partial)): {"size": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(partial.rglob("*"))
        if path.is_file()
    }
    write_text(partial / MANIFEST, _manifest_text({"format": FORMAT, "step": step, "files": files}))
    mode = (partial / MANIFEST).stat().st_mode
    for name in files:  # safetensors writes files that only their owner may read
        (partial / name).chmod(mode)
    final = partial.parent / f"step-{step:08d}"
    publish_folder(partial, final)
    return Checkpoint(final, step)


def prune_checkpoints(folder: Path, step: int, keep: int, besides: Collection[int] = ()) -> None:
    """Remove the oldest checkpoints beyond those that stay.

    Args:
        folder: Where they lie.
        step: Step of the run. A newer checkpoint is damaged, or the run would have resumed from it: it is ignored
            and not removed.
        keep: How many of the newest stay; >= 1.
        besides: Steps whose checkpoints stay whatever their age.
    """
    old = [checkpoint for checkpoint in checkpoints(folder) if checkpoint.step <= step][:-keep]
    for checkpoint in old:
        if checkpoint.step not in besides:
            # it loses its name first: a process killed meanwhile leaves no checkpoint of which a part is missing
            gone = checkpoint.path.with_name(f".{checkpoint.path.name}.removed")
            checkpoint.path.rename(gone)
            sync_folder(folder)
            remove_folder(gone)


def _manifest_text(listed: dict[str, Any], *, signed: bool = True) -> str:
    """Return the text of a manifest, with a checksum of its content, so that damage to it is detected."""
    own = hashlib.sha256(json_text(listed).encode()).hexdigest()
    return json_text(listed | {"sha256": own} if signed else listed)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
