"""Trackers: where metrics also go, beside ``metrics.jsonl``."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import PositiveFloat

from loopkit.registry import register


@dataclass(frozen=True)
class RunInfo:
    """Facts about the run for trackers.

    Args:
        name: Name of the run.
        folder: Its folder.
        recipe: The resolved recipe as plain values.
        provenance: What was recorded about code and machine.
        resumed_from: Optimizer steps already done when this process started; 0 for a fresh run.
    """

    name: str
    folder: Path
    recipe: Mapping[str, Any]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    resumed_from: int = 0


class Tracker:
    """Where metrics also go; only the first rank has one.

    An exception raised here disables the tracker for the rest of the run, with one line to the user: a service that is
    down never stops training.
    """

    def open(self, run: RunInfo) -> None:
        """Begin; called once before the first step."""
        raise NotImplementedError

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one optimizer step, flat: ``ce/1``, ``state_norm/4``, ``eval/2/loss``.

        Args:
            step: Optimizer steps done.
            metrics: Finite numbers by name.
        """
        raise NotImplementedError

    def close(self, status: str) -> None:
        """End; does nothing if ``open`` was never called or failed.

        Args:
            status: ``finished``, ``interrupted`` or ``failed``.
        """
        raise NotImplementedError


@register("tracker", "tensorboard", packages={"tensorboard": "loopkit[track]"})
class TensorBoard(Tracker):
    """Event files in the run's folder, for ``tensorboard --logdir runs``.

    A resumed run goes on in the same folder; what was logged after its checkpoint is hidden.

    Args:
        flush_seconds: At most so much is lost when the process is killed, in seconds.
    """

    def __init__(self, *, flush_seconds: PositiveFloat = 30.0) -> None:
        self.flush_seconds = flush_seconds
        self._writer: Any = None

    def open(self, run: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # events with a step of at least this number, from before, are dropped by the viewer
        purge = run.resumed_from + 1 if run.resumed_from else None
        self._writer = SummaryWriter(
            str(run.folder / "tensorboard"), purge_step=purge, flush_secs=max(1, round(self.flush_seconds))
        )
        if not run.resumed_from:
            self._writer.add_text("recipe", "```json\n" + json.dumps(run.recipe, indent=2) + "\n```", 0)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self, status: str) -> None:
        if self._writer is not None:
            self._writer.close()


@register("tracker", "wandb", packages={"wandb": "loopkit[track]"})
class WeightsAndBiases(Tracker):
    """A run at Weights & Biases, or in the run's folder until ``wandb sync`` sends it.

    The id is kept in the run's folder, so a resumed run goes on in the same place. Steps are a metric of their own:
    a resumed run repeats some, which Weights & Biases would otherwise refuse.

    Args:
        project: Where the run is filed.
        entity: Whose project; null takes the user's own.
        mode: Whether to send at once or to keep everything in the run's folder.
    """

    conformance: ClassVar[dict[str, Any]] = {"options": {"mode": "offline"}}
    """The conformance kit sends nothing and needs no account."""

    def __init__(
        self, *, project: str = "loopkit", entity: str | None = None, mode: Literal["online", "offline"] = "online"
    ) -> None:
        self.project, self.entity, self.mode = project, entity, mode
        self._run: Any = None

    def open(self, run: RunInfo) -> None:
        import wandb

        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            name=run.name,
            id=kept_id(run.folder / "wandb.json"),
            resume="allow",
            dir=str(run.folder),
            config=dict(run.recipe),
            settings=wandb.Settings(console="off"),  # progress bars are no log
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({**metrics, "step": step})

    def close(self, status: str) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "finished" else 1)


@register("tracker", "trackio", packages={"trackio": "loopkit[track]"})
class Trackio(Tracker):
    """A run in a local Trackio database, for ``trackio show``.

    Args:
        project: Where the run is filed.
        space: A Hugging Face Space to send to, such as ``me/dashboard``; null keeps everything on this machine.
    """

    def __init__(self, *, project: str = "loopkit", space: str | None = None) -> None:
        self.project, self.space = project, space
        self._run: Any = None

    def open(self, run: RunInfo) -> None:
        import trackio

        self._run = trackio.init(
            project=self.project,
            name=f"{run.name}-{kept_id(run.folder / 'trackio.json')}",  # names are all that tells its runs apart
            space_id=self.space,
            config=dict(run.recipe),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, status: str) -> None:
        if self._run is not None:
            self._run.finish()


def kept_id(file: Path) -> str:
    """The id of the run in a service; created once and stored in the run folder."""
    if file.is_file():
        return str(json.loads(file.read_text(encoding="utf-8"))["id"])
    run_id = secrets.token_hex(4)
    file.write_text(json.dumps({"id": run_id}) + "\n", encoding="utf-8")
    return run_id
