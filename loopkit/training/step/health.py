"""Health checks of an optimizer step, and the actions that ``train.health`` selects.

Every event is a line of ``metrics.jsonl``:

``step``: the optimizer step, counted from 1; ``event``: ``not_finite``, ``state_norm`` or ``loss_spike``; ``action``:
``warn``, ``stop``, ``skip_step`` or ``rewind``; ``what``: a description; ``value`` and ``limit``: the number and its
bound, null if it is not finite or has no bound; ``batch_sha``: digest of the data. A rewind also has ``to_step``, the
step from which the run continues, and ``skipped_sequences``, the number of sequences that it leaves out.

The checks use only numbers that are reduced over all ranks, so every rank finds the same event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from loopkit.plural import plural
from loopkit.recipe import format as recipe
from loopkit.training.step.metrics import StepValues

Action = Literal["warn", "stop", "skip_step", "rewind"]
Kind = Literal["not_finite", "state_norm", "loss_spike"]

STD_PER_MAD = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
MIN_RELATIVE_STD = 0.01
"""Floor of the standard deviation, relative to the median; avoids false spike detections on nearly constant losses."""


@dataclass(frozen=True)
class History:
    """State of the health checks, saved in checkpoints.

    Args:
        losses: Losses of the most recent updates, oldest first; empty if ``loss_spike`` is off.
        skips: Steps skipped since the last update.
        rewinds: Rewinds of the run.
    """

    losses: tuple[float, ...] = ()
    skips: int = 0
    rewinds: int = 0


@dataclass(frozen=True)
class Event:
    """Something wrong with a step.

    Args:
        step: The optimizer step, counted from 1.
        kind: The check that failed.
        action: The action to take.
        what: Description.
        value: The number at fault.
        limit: Its bound, if it has one.
        batch_sha: Digest of the sequences of the step.
    """

    step: int
    kind: Kind
    action: Action
    what: str
    value: float
    limit: float | None = None
    batch_sha: str = ""

    def record(self, **extra: Any) -> dict[str, Any]:
        """Return the line of ``metrics.jsonl``."""
        return {
            "step": self.step,
            "event": self.kind,
            "action": self.action,
            "what": self.what,
            "value": self.value if math.isfinite(self.value) else None,
            "limit": self.limit,
            "batch_sha": self.batch_sha,
            **extra,
        }


class Rewind(Exception):
    """The run must return to its last complete checkpoint and continue with later data.

    Args:
        event: The reason.
        sequences: The first sequence after the data at fault, as a position in the stream of epochs.
        rewinds: Number of rewinds of the run, including this one.
    """

    def __init__(self, event: Event, sequences: int, rewinds: int) -> None:
        super().__init__(event.what)
        self.event, self.sequences, self.rewinds = event, sequences, rewinds


class HealthMonitor:
    """Check steps against ``train.health``.

    Args:
        settings: That section of the recipe.
    """

    def __init__(self, settings: recipe.HealthConfig) -> None:
        self.settings = settings

    @property
    def checks_every_step(self) -> bool:
        """Whether every step is checked before its update, which waits for the device. Otherwise only logged steps are
        checked, and weights before they are saved."""
        limits = (self.settings.state_norm.limit, self.settings.loss_spike.num_std)
        return self.settings.not_finite != "stop" or any(limit is not None for limit in limits)

    def check(self, step: int, values: StepValues, history: History, batch_sha: str) -> Event | None:
        """Check a step after its backward pass and before its update.

        Args:
            step: Counted from 1.
            values: Its metrics, over all ranks.
            history: State of the checks before the step.
            batch_sha: Digest of its sequences.
        """
        event = self._not_finite(step, values) or self._large_state(step, values) or self._spike(step, values, history)
        return None if event is None else self._within_budget(replace(event, batch_sha=batch_sha), history)

    def gradient_event(self, step: int, norm: float, history: History, batch_sha: str) -> Event:
        """Return the event of a gradient that is not finite and that DeepSpeed dropped on all ranks."""
        message = f"the gradient's norm is {norm}"
        event = Event(step, "not_finite", self.settings.not_finite, message, norm, batch_sha=batch_sha)
        return self._within_budget(event, history)

    def extend(self, history: History, values: StepValues | None) -> History:
        """Return the history after an update."""
        losses = history.losses
        if self.settings.loss_spike.num_std is None:
            losses = ()
        elif values is not None:
            losses = (*losses, values.loss)[-self.settings.loss_spike.window :]
        return replace(history, losses=losses, skips=0)

    def _not_finite(self, step: int, values: StepValues) -> Event | None:
        fault = values.fault()
        return None if fault is None else Event(step, "not_finite", self.settings.not_finite, *fault)

    def _large_state(self, step: int, values: StepValues) -> Event | None:
        rule = self.settings.state_norm
        loop, norm = values.largest_state()
        if rule.limit is None or norm <= rule.limit:
            return None
        message = f"the state of loop {loop} has a norm of {norm:.4g}, more than {rule.limit:g}"
        return Event(step, "state_norm", rule.action, message, norm, rule.limit)

    def _spike(self, step: int, values: StepValues, history: History) -> Event | None:
        rule = self.settings.loss_spike
        if rule.num_std is None or len(history.losses) < rule.window:
            return None
        center = median(history.losses)
        std = STD_PER_MAD * median(abs(loss - center) for loss in history.losses)
        limit = center + rule.num_std * max(std, MIN_RELATIVE_STD * abs(center))
        if values.loss <= limit:
            return None
        message = f"the loss is {values.loss:.4f}, its recent median {center:.4f}"
        return Event(step, "loss_spike", rule.action, message, values.loss, limit)

    def _within_budget(self, event: Event, history: History) -> Event:
        """Return the event; its action becomes ``stop`` when skips or rewinds are used up."""
        limit = {"skip_step": self.settings.max_skips, "rewind": self.settings.max_rewinds}.get(event.action)
        count = history.skips if event.action == "skip_step" else history.rewinds
        if limit is None or count < limit:
            return event
        used = f"{plural(count, 'step')} skipped in a row" if event.action == "skip_step" else plural(count, "rewind")
        option = "max_skips" if event.action == "skip_step" else "max_rewinds"
        return replace(event, action="stop", what=f"{event.what}, after {used} (train.health.{option})")
