"""What a run folder holds, read back for a report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.errors import FileError, UserError, file_errors
from loopkit.recipe.migration.renames import read_protocol
from loopkit.runs import RunFolder, read_metrics, read_provenance

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """One run, as its folder tells it.

    Args:
        name: Name of the run.
        lines: Lines of ``metrics.jsonl``.
        evaluations: Results in ``eval/``, by optimizer step, the latest last.
        provenance: Versions, machine, commands; empty if the file is not there.
    """

    name: str
    lines: Sequence[Json]
    evaluations: Sequence[Json]
    provenance: Json

    @property
    def commands(self) -> list[str]:
        """What was typed in each session of training."""
        return [_typed(session["command"]) for session in self.provenance.get("sessions", ())]

    def spent(self, step: int, what: str) -> float | None:
        """Tokens or FLOPs of training up to a step, or ``None`` where ``metrics.jsonl`` does not say.

        Args:
            step: Optimizer steps done.
            what: ``tokens`` or ``flops``, fields that count from the start of the run.
        """
        if step == 0:
            return 0
        known = [line[what] for line in self.lines if line["step"] <= step and line.get(what) is not None]
        reached = any(line["step"] >= step for line in self.lines)
        return known[-1] if known and reached else None

    def latest(self, split: str | None = None) -> Json | None:
        """The result of the latest checkpoint on a split, or on any."""
        fitting = [result for result in self.evaluations if split is None or result["split"] == split]
        return fitting[-1] if fitting else None


def _typed(words: Sequence[str]) -> str:
    """A command, whichever file of the package has answered to it."""
    program = Path(words[0])
    own = program.name == "loopkit" or program.parts[-2:] == ("loopkit", "__main__.py")
    return shlex.join(["loopkit" if own else words[0], *words[1:]])


def read_record(folder: RunFolder) -> Record:
    """Read everything that reports need of a run.

    Raises:
        ValueError: If a file is damaged, naming it.
    """
    return Record(
        name=folder.name,
        lines=read_metrics(folder.metrics) if folder.metrics.is_file() else [],
        evaluations=_evaluations(folder.evaluations),
        provenance=read_provenance(folder.provenance) if folder.provenance.is_file() else {},
    )


def _evaluations(folder: Path) -> list[Json]:
    """All results, by step; of those of one step, the one written last stands last."""
    found = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        try:
            with file_errors(path, "read"):
                result = json.loads(path.read_text(encoding="utf-8"))
        except FileError:
            raise
        except ValueError as error:
            raise UserError(f"{path} is not JSON ({error}); remove it, or evaluate again") from None
        found.append(read_protocol(result))
    return sorted(found, key=lambda result: result.get("step", 0))
