"""The folder of a run: what it is called, what lies where in it, and when it may be made."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from loopkit.errors import UserError, file_errors


class RunExists(UserError):
    """A run of this name is already there."""


class NoRun(UserError):
    """The run does not exist."""


@dataclass(frozen=True)
class RunFolder:
    """Where everything of one run lies.

    Args:
        path: The folder, such as ``runs/wikitext_44m_raw-mini``.
    """

    path: Path

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def recipe(self) -> Path:
        """The recipe as it was written."""
        return self.path / "recipe.yaml"

    @property
    def resolved(self) -> Path:
        """The recipe with every default filled."""
        return self.path / "resolved.yaml"

    @property
    def provenance(self) -> Path:
        """Versions, machine, command and times."""
        return self.path / "provenance.json"

    @property
    def deepspeed(self) -> Path:
        """The generated DeepSpeed configuration."""
        return self.path / "deepspeed.json"

    @property
    def metrics(self) -> Path:
        """One line per logged optimizer step."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Return the checkpoint of an optimizer step."""
        return self.checkpoints / f"step-{step:08d}"

    @property
    def evaluations(self) -> Path:
        """Folder of the evaluation results."""
        return self.path / "eval"

    @property
    def imported(self) -> Path:
        """What is kept of the published folder that the model came from, if it did."""
        return self.path / "imported"

    @property
    def plugins(self) -> Path:
        """Copies of the plugin files that the run was trained with, named by their content."""
        return self.path / "plugins"

    @property
    def report(self) -> Path:
        """The report in Markdown."""
        return self.path / "report.md"

    @property
    def report_html(self) -> Path:
        """The same report as one file, plots inside."""
        return self.path / "report.html"

    @property
    def model_card(self) -> Path:
        """What goes with the weights when they are handed on."""
        return self.path / "model_card.md"

    def refuse_existing(self) -> None:
        """Stop before anything is overwritten.

        Raises:
            RunExists: If the folder is there.
        """
        if self.path.exists():
            raise RunExists(
                f"the run {self.path} already exists; "
                "continue it with --resume, or give this one another name with --name"
            )

    def create(self) -> RunFolder:
        """Make the folder.

        Raises:
            RunExists: If the folder is there.
        """
        self.refuse_existing()
        with file_errors(self.path, "made"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.path.mkdir()
            except FileExistsError:  # another process was faster
                self.refuse_existing()
            self.checkpoints.mkdir()
            self.evaluations.mkdir()
        return self

    def inherit(self, start_from: Path) -> None:
        """Take along what the run, checkpoint or weights file that training starts from keeps of a published folder.

        Args:
            start_from: As ``train.start_from`` names it.
        """
        for folder in (start_from, *start_from.parents):
            other = RunFolder(folder)
            if other.resolved.is_file() and other.checkpoints.is_dir():  # a checkpoint has a resolved recipe too
                if other.imported.is_dir():
                    shutil.copytree(other.imported, self.imported)
                return

    @classmethod
    def open(cls, run: str | Path | None, root: Path = Path("runs")) -> RunFolder:
        """Find a run by its path or its name; the newest one where nothing is named.

        Args:
            run: Path of a run folder, name of a run under root, or None.
            root: Folder of the runs.

        Raises:
            NoRun: If there is none, naming those that are there.
        """
        if run is None:
            return cls.newest(root)
        for path in (Path(run), root / run):
            if (path / "resolved.yaml").is_file():
                return cls(path)
        names = ", ".join(folder.name for folder in cls.all(root)) or "none"
        raise NoRun(f"no run is named '{run}'; runs in {root}: {names}")

    @classmethod
    def newest(cls, root: Path = Path("runs")) -> RunFolder:
        """Return the run that was written to last.

        Raises:
            NoRun: If there is none.
        """
        runs = cls.all(root)
        if not runs:
            raise NoRun(f"there are no runs in {root}; train one: loopkit train RECIPE")
        return max(runs, key=lambda run: run.written)

    @classmethod
    def all(cls, root: Path = Path("runs")) -> list[RunFolder]:
        """Return every run in a folder, by name."""
        if not root.is_dir():
            return []
        with file_errors(root, "read"):
            return [cls(path) for path in sorted(root.iterdir()) if (path / "resolved.yaml").is_file()]

    @property
    def written(self) -> float:
        """When training last wrote to the run, in seconds of the system's clock."""
        return max(path.stat().st_mtime for path in (self.resolved, self.metrics, self.provenance) if path.exists())


def run_name(recipe: str, changed: str | None = None) -> str:
    """Name of a run: RECIPE or RECIPE-PROFILE, and a short hash where ``--set`` made it differ from both.

    Args:
        recipe: Name of the recipe with the profiles in force, as a resolved recipe has it.
        changed: Hash of the resolved recipe if ``--set`` was used, else None.
    """
    return recipe if changed is None else f"{recipe}-{changed[:8]}"


def check_name(name: str) -> str:
    """Return the name, if a folder may be called that.

    Raises:
        ValueError: If it is empty, starts with a dot or a dash, or contains anything but letters, digits, ``._-``.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(
            f"--name {name!r}: a run's name is letters, digits and '_', and after the first also '-' and '.'"
        )
    return name
