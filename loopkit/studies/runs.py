"""The runs behind a study: trained if missing, resumed if interrupted, left alone if done."""

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

BEGUN = frozenset(
    {"recipe.yaml", "resolved.yaml", "provenance.json", "deepspeed.json", "metrics.jsonl", "checkpoints", "eval", LOCK}
)
"""What a run folder holds before its first checkpoint; a folder with anything else is never removed."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Planned:
    """One training run of a study.

    Args:
        arm: Name of the arm.
        seed: Its seed.
        recipe: Resolved.
        words: The recipe's file, profiles and overrides, as ``loopkit train`` takes them.
        folder: Where the run goes.
    """

    arm: str
    seed: int
    recipe: Recipe
    words: tuple[str, ...]
    folder: RunFolder

    @property
    def state(self) -> str:
        """``missing``, ``interrupted`` or ``done``.

        Raises:
            ValueError: If the folder holds a run of another recipe.
        """
        if not self.folder.path.exists():
            return "missing"
        if not self.folder.provenance.is_file() and self._bare:
            return "missing"
        record = read_provenance(self.folder.provenance)
        if not is_run_of(self.folder, self.recipe):
            raise UserError(
                f"{self.folder.path} was trained from another state of the recipe; "
                "move it away, or choose another folder with --runs"
            )
        sessions = record.get("sessions", [])
        if self._bare:
            return "missing"
        return "done" if sessions and sessions[-1].get("status") == "finished" else "interrupted"

    @property
    def _bare(self) -> bool:
        """Whether the folder is of a run that was killed before its first checkpoint: nothing in it can be resumed."""
        checkpoints, own = self.folder.checkpoints, {path.name for path in self.folder.path.iterdir()}
        return own <= BEGUN and not (checkpoints.is_dir() and any(checkpoints.iterdir()))


class Failed(RuntimeError):
    """Training ended with a fault, which it has told itself.

    Args:
        name: Name of the run.
        code: Its exit code.
    """

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"training {name} ended with exit code {code}")
        self.code = code


def planned_runs(
    study: LoadedStudy, profile: str | None, seeds: tuple[int, ...], arms: tuple[str, ...], root: Path
) -> Iterator[Planned]:
    """Every run that a study stands for, arm by arm within a seed.

    Args:
        study: The study.
        profile: Its scale.
        seeds: Instead of those of the study; empty for those.
        arms: Only these; empty for all.
        root: Folder of the runs.

    Raises:
        ValueError: If there is no such profile or arm.
    """
    scale = study.scale(profile)
    if unknown := [arm for arm in arms if arm not in study.arms]:
        raise UserError(f"{study.name} has no arm {', '.join(unknown)}; arms: {', '.join(study.arms)}")
    for seed in seeds or scale.seeds or study.seeds:
        for name, arm in study.arms.items():
            if not arms or name in arms:
                recipe = study.recipe(arm, scale, seed)
                run = "-".join((study.name, *([profile] if profile else []), name, f"seed{seed}"))
                words = _words(recipe, arm, scale, seed)
                yield Planned(name, seed, recipe, words, RunFolder(root / run))


def _words(recipe: Recipe, arm: Arm, scale: StudyScale, seed: int) -> tuple[str, ...]:
    profiles = [word for profile in scale.apply for word in ("--profile", profile)]
    overrides = [word for text in (*arm.set, f"seed={seed}") for word in ("--set", text)]
    return (str(recipe.path), *profiles, *overrides)


def finish(run: Planned, say: Say) -> None:
    """Train a run to its end, in a process of its own.

    Raises:
        Failed: If training fails.
        KeyboardInterrupt: If it was interrupted; it can be resumed.
    """
    state = run.state
    if state == "done":
        return
    if state == "missing" and run.folder.path.exists():
        shutil.rmtree(run.folder.path)
    say(f"{'resuming' if state == 'interrupted' else 'training'} {run.folder.name}")
    resume = ["--resume"] if state == "interrupted" else []
    words = ["train", *run.words, "--name", run.folder.name, "--runs", str(run.folder.path.parent), *resume]
    done = subprocess.run([sys.executable, "-m", "loopkit", *words], stdout=subprocess.DEVNULL)
    if done.returncode in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        raise KeyboardInterrupt
    if done.returncode:
        raise Failed(run.folder.name, done.returncode)
