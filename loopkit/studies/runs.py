"""The runs of a study: trained if missing, resumed if interrupted, and otherwise unchanged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode
from loopkit.recipe import Recipe
from loopkit.runs import RunFolder, read_provenance
from loopkit.runs.lock import LOCK
from loopkit.runs.resolved import is_run_of
from loopkit.studies.format import Arm, StudyScale
from loopkit.studies.study import LoadedStudy

INITIAL_FILES = frozenset(
    {"recipe.yaml", "resolved.yaml", "provenance.json", "deepspeed.json", "metrics.jsonl", "checkpoints", "eval", LOCK}
)
"""Files of a run before its first checkpoint; a folder with any other file is never removed."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a study.

    Args:
        arm: Name of the arm.
        seed: Its seed.
        recipe: Resolved.
        args: Arguments of ``loopkit train``: the recipe's file, profiles and overrides.
        folder: Folder of the run.
    """

    arm: str
    seed: int
    recipe: Recipe
    args: tuple[str, ...]
    folder: RunFolder

    @property
    def state(self) -> str:
        """``missing``, ``interrupted`` or ``done``.

        Raises:
            UserError: If the folder contains a run of another recipe.
        """
        if not self.folder.path.exists():
            return "missing"
        if not self.folder.provenance.is_file() and self._is_disposable:
            return "missing"
        record = read_provenance(self.folder.provenance)
        if not is_run_of(self.folder, self.recipe):
            raise UserError(
                f"{self.folder.path} was trained with a different version of the recipe; "
                "move the folder, or choose another one with --runs"
            )
        sessions = record.get("sessions", [])
        if self._is_disposable:
            return "missing"
        return "done" if sessions and sessions[-1].get("status") == "finished" else "interrupted"

    @property
    def _is_disposable(self) -> bool:
        """Whether the run was killed before its first checkpoint, so that nothing can be resumed."""
        checkpoints, files = self.folder.checkpoints, {path.name for path in self.folder.path.iterdir()}
        return files <= INITIAL_FILES and not (checkpoints.is_dir() and any(checkpoints.iterdir()))


class TrainingFailed(RuntimeError):
    """The training process failed and has printed its error.

    Args:
        name: Name of the run.
        code: Its exit code.
    """

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"training {name} ended with exit code {code}")
        self.code = code


def planned_runs(
    study: LoadedStudy, profile: str | None, seeds: tuple[int, ...], arms: tuple[str, ...], root: Path
) -> Iterator[PlannedRun]:
    """Yield every run of a study, arm by arm within a seed.

    Args:
        study: The study.
        profile: Name of a scale; None for the full one.
        seeds: Seeds; empty for those of the study.
        arms: Names of the arms; empty for all.
        root: Folder of the runs.

    Raises:
        UserError: If the profile or an arm does not exist.
    """
    scale = study.scale(profile)
    if unknown := [arm for arm in arms if arm not in study.arms]:
        raise UserError(f"{study.name} has no arm {', '.join(unknown)}; arms: {', '.join(study.arms)}")
    for seed in seeds or scale.seeds or study.seeds:
        for name, arm in study.arms.items():
            if not arms or name in arms:
                recipe = study.recipe(arm, scale, seed)
                run = "-".join((study.name, *([profile] if profile else []), name, f"seed{seed}"))
                args = _train_args(recipe, arm, scale, seed)
                yield PlannedRun(name, seed, recipe, args, RunFolder(root / run))


def _train_args(recipe: Recipe, arm: Arm, scale: StudyScale, seed: int) -> tuple[str, ...]:
    profiles = [arg for profile in scale.apply for arg in ("--profile", profile)]
    overrides = [arg for override in (*arm.set, f"seed={seed}") for arg in ("--set", override)]
    return (str(recipe.path), *profiles, *overrides)


def numbered(say: Say, number: int, total: int) -> Say:
    """Prefix messages with the number of a run."""
    return lambda message: say(f"[{number}/{total}] {message}")


def finish(run: PlannedRun, say: Say) -> None:
    """Train or resume a run until it is finished, in a separate process.

    Raises:
        TrainingFailed: If training fails.
        KeyboardInterrupt: If training was interrupted; it can be resumed.
    """
    state = run.state
    if state == "done":
        return
    if state == "missing" and run.folder.path.exists():
        shutil.rmtree(run.folder.path)
    say(f"{'resuming' if state == 'interrupted' else 'training'} {run.folder.name}")
    resume = ["--resume"] if state == "interrupted" else []
    args = ["train", *run.args, "--name", run.folder.name, "--runs", str(run.folder.path.parent), *resume]
    process = subprocess.run([sys.executable, "-m", "loopkit", *args], stdout=subprocess.DEVNULL)
    if process.returncode in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        raise KeyboardInterrupt
    if process.returncode:
        raise TrainingFailed(run.folder.name, process.returncode)
