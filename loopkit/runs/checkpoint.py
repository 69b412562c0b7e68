"""Checkpoint folders: complete or absent, and verified before use.

``checkpoints/step-00000600/manifest.json`` lists every other file with its size and SHA-256. It is written last, into a
folder that is renamed only when everything is on disk. A folder with its final name was therefore complete once, and
its manifest shows whether it still is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loopkit.errors import UserError
from loopkit.runs.atomic import json_text, publish_folder, remove_folder, sync_folder, write_text
from loopkit.runs.manifest import MANIFEST, find_damage, list_files

FORMAT = 1

# files of the folder
WEIGHTS = "weights.safetensors"
EMA = "ema.safetensors"
OBJECTIVE = "objective.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
RESOLVED = "resolved.yaml"
TOKENIZER = "tokenizer"


EARLIER = "use an earlier checkpoint with --step, or restore the file"
"""The remedy for a damaged checkpoint."""

Weights = Literal["trained", "ema"]
"""Weights of a checkpoint: those of its optimizer step, or their exponential moving average (``train.ema``)."""


class CheckpointProblem(UserError):
    """A checkpoint that is missing or damaged; the message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """The folder of a checkpoint, which may be incomplete or damaged."""

    path: Path
    step: int

    def problem(self) -> str | None:
        """Return what is wrong with this checkpoint, with the file, or None if every byte is as it was written."""
        manifest = self.path / MANIFEST
        try:
            files = self._listed()
        except FileNotFoundError:
            return f"{manifest} is missing"
        except CheckpointProblem as problem:
            return str(problem)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"{manifest} is damaged"
        damage = find_damage(self.path, files)
        return f"{self.path}/{damage}" if damage else None

    def holds(self, name: str) -> bool:
        """Check whether a file was written with this checkpoint; files added later do not count."""
        return name in self._listed()

    def weights_file(self, weights: Weights = "trained") -> Path:
        """Return the file of the chosen weights.

        Raises:
            CheckpointProblem: If the checkpoint has no average.
        """
        if weights == "trained":
            return self.path / WEIGHTS
        if not self.holds(EMA):
            raise CheckpointProblem(
                f"{self.path} contains no averaged weights, because the run has no train.ema; use the trained ones, "
                "or train with --set train.ema.decay=0.999"
            )
        return self.path / EMA

    def _listed(self) -> dict[str, dict[str, Any]]:
        """Return the files of the manifest, after checking that it is exactly what loopkit writes for this step."""
        manifest = self.path / MANIFEST
        text = manifest.read_text(encoding="utf-8")
        listed: dict[str, Any] = json.loads(text)
        if listed["format"] != FORMAT:
            raise CheckpointProblem(
                f"{manifest}: format {listed['format']}, this loopkit reads {FORMAT}; use the version that wrote it"
            )
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
        """Return this checkpoint if it is complete.

        Raises:
            CheckpointProblem: If it is not; the message names the file.
        """
        if problem := self.problem():
            raise CheckpointProblem(f"this checkpoint is damaged: {problem}; {EARLIER}")
        return self


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints in a folder, oldest first; partial ones do not have their name yet."""
    steps = {path: step_of(path) for path in (folder.iterdir() if folder.is_dir() else ())}
    complete = [Checkpoint(path, step) for path, step in steps.items() if step is not None]
    return sorted(complete, key=lambda checkpoint: checkpoint.step)


def step_of(path: Path) -> int | None:
    """Return the optimizer step in the name of a checkpoint, or None if the name is not that of a checkpoint."""
    match = re.fullmatch(r"step-(\d+)", path.name)
    return int(match[1]) if match else None


def newest_checkpoint(folder: Path) -> tuple[Checkpoint, list[str]]:
    """Return the newest complete checkpoint.

    Returns:
        The checkpoint, and what is wrong with each newer one: the caller must report it.

    Raises:
        CheckpointProblem: If there is none, or none is complete, so that no run starts afresh silently.
    """
    damaged: list[str] = []
    for checkpoint in reversed(checkpoints(folder)):
        problem = checkpoint.problem()
        if problem is None:
            return checkpoint, damaged
        damaged.append(problem)
    if damaged:
        raise CheckpointProblem(
            f"no checkpoint is complete: {'; '.join(damaged)}; restore the files, or train again under another --name"
        )
    raise CheckpointProblem(f"there is no checkpoint in {folder}; start a new run with --name")


def begin_checkpoint(folder: Path, step: int) -> Path:
    """Create an empty folder for ``publish_checkpoint``; remove partial folders of earlier attempts."""
    for left in folder.glob(".step-*") if folder.is_dir() else ():
        remove_folder(left)
    partial = partial_checkpoint(folder, step)
    partial.mkdir(parents=True)
    return partial


def partial_checkpoint(folder: Path, step: int) -> Path:
    """Return the folder in which a checkpoint is filled."""
    return folder / f".step-{step:08d}.partial"


def publish_checkpoint(partial: Path, step: int) -> Checkpoint:
    """Write the manifest and give the folder its final name.

    Args:
        partial: The filled folder of ``begin_checkpoint``.
        step: Optimizer steps done.
    """
    files = list_files(partial)
    write_text(partial / MANIFEST, _manifest_text({"format": FORMAT, "step": step, "files": files}))
    mode = (partial / MANIFEST).stat().st_mode
    for name in files:  # safetensors writes files that only their owner may read
        (partial / name).chmod(mode)
    final = partial.parent / f"step-{step:08d}"
    publish_folder(partial, final)
    return Checkpoint(final, step)


def prune_checkpoints(folder: Path, step: int, keep: int, protected_steps: Collection[int] = ()) -> None:
    """Remove the oldest checkpoints.

    Args:
        folder: Folder of the checkpoints.
        step: Step of the run. A newer checkpoint is damaged, or the run would have resumed from it: it is ignored
            and not removed.
        keep: Number of newest checkpoints to keep; >= 1.
        protected_steps: Steps whose checkpoints are kept at any age.
    """
    old = [checkpoint for checkpoint in checkpoints(folder) if checkpoint.step <= step][:-keep]
    for checkpoint in old:
        if checkpoint.step not in protected_steps:
            # renamed first, so that a process killed meanwhile does not leave an incomplete checkpoint
            removed = checkpoint.path.with_name(f".{checkpoint.path.name}.removed")
            checkpoint.path.rename(removed)
            sync_folder(folder)
            remove_folder(removed)


def _manifest_text(listed: dict[str, Any], *, signed: bool = True) -> str:
    """Return the text of a manifest, with a checksum of its content, so that damage to it is detected."""
    own = hashlib.sha256(json_text(listed).encode()).hexdigest()
    return json_text(listed | {"sha256": own} if signed else listed)
