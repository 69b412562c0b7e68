"""What is wrong with a step, and what the recipe says is to be done about it.

Every event is a line of ``metrics.jsonl``:

``step``: the optimizer step, counted from 1; ``event``: ``not_finite``, ``state_norm`` or ``loss_spike``; ``action``:
what was done, ``warn``, ``stop``, ``skip_step`` or ``rewind``; ``what``: in words; ``value`` and ``limit``: the number
and its bound, null where it is not finite or has none; ``batch_sha``: the data. A rewind also has ``to_step``, where
the run went on, and ``skipped_sequences``, how many sequences of the stream it left out.

A verdict depends on nothing but numbers that are sums over all ranks, so it is the same on every rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from loopkit.recipe import format as recipe
from loopkit.training.step.metrics import StepValues

Action = Literal["warn", "stop", "skip_step", "rewind"]
Kind = Literal["not_finite", "state_norm", "loss_spike"]

NORMAL = 1.4826
"""Standard deviation of a normal variable over the median of its distances from its median."""
LEAST_DEVIATION = 0.01
"""Of the median: losses that hardly differ make no spike of a small difference."""


@dataclass(frozen=True)
class History:
    """What verdicts remember; a part of a checkpoint.

    Args:
        losses: The most recent ones of steps that were taken, the oldest first; none where no spike is looked for.
        skips: Steps skipped since the last one that was taken.
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
        kind: What kind of thing.
        action: What is done.
        what: In words.
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

    def line(self, **more: Any) -> dict[str, Any]:
        """The line of ``metrics.jsonl``."""
        return {
            "step": self.step,
            "event": self.kind,
            "action": self.action,
            "what": self.what,
            "value": self.value if math.isfinite(self.value) else None,
            "limit": self.limit,
            "batch_sha": self.batch_sha,
            **more,
        }


class HealthMonitor:
    """Judge steps by ``train.health``.

    Args:
        settings: That section of the recipe.
    """

    def __init__(self, settings: recipe.HealthConfig) -> None:
        self.settings = settings

    @property
    def every_step(self) -> bool:
        """Whether each step has to be looked at before its update, which waits for the device. Otherwise steps that
        are logged are looked at, and weights before they are saved."""
        limits = (self.settings.state_norm.limit, self.settings.loss_spike.num_std)
        return self.settings.not_finite != "stop" or any(limit is not None for limit in limits)

    def judge(self, step: int, values: StepValues, history: History, batch_sha: str) -> Event | None:
        """What is wrong with a step whose gradient is there and whose update is not.

        Args:
            step: Counted from 1.
            values: What was measured, over all ranks.
            history: What happened before.
            batch_sha: Digest of its sequences.
        """
        event = self._not_finite(step, values) or self._large_state(step, values) or self._spike(step, values, history)
        return None if event is None else self._within_budget(replace(event, batch_sha=batch_sha), history)

    def lost_gradient(self, step: int, norm: float, history: History, batch_sha: str) -> Event:
        """A gradient of which DeepSpeed found, on all ranks, that it is not finite, and which it dropped."""
        words = f"the gradient's norm is {norm}"
        event = Event(step, "not_finite", self.settings.not_finite, words, norm, batch_sha=batch_sha)
        return self._within_budget(event, history)

    def taken(self, history: History, values: StepValues | None) -> History:
        """The history once a step has been taken."""
        losses = history.losses
        if self.settings.loss_spike.num_std is None:
            losses = ()
        elif values is not None:
            losses = (*losses, values.loss)[-self.settings.loss_spike.window :]
        return replace(history, losses=losses, skips=0)

    def _not_finite(self, step: int, values: StepValues) -> Event | None:
        found = values.fault()
        return None if found is None else Event(step, "not_finite", self.settings.not_finite, *found)

    def _large_state(self, step: int, values: StepValues) -> Event | None:
        rule = self.settings.state_norm
        loop, norm = values.largest_state()
        if rule.limit is None or norm <= rule.limit:
            return None
        words = f"the state of loop {loop} has a norm of {norm:.4g}, more than {rule.limit:g}"
        return Event(step, "state_norm", rule.action, words, norm, rule.limit)

    def _spike(self, step: int, values: StepValues, history: History) -> Event | None:
        rule = self.settings.loss_spike
        if rule.num_std is None or len(history.losses) < rule.window:
            return None
        middle = median(history.losses)
        spread = NORMAL * median(abs(loss - middle) for loss in history.losses)
        limit = middle + rule.num_std * max(spread, LEAST_DEVIATION * abs(middle))
        if values.loss <= limit:
            return None
        words = f"the loss is {values.loss:.4f}, its recent median {middle:.4f}"
        return Event(step, "loss_spike", rule.action, words, values.loss, limit)

    def _within_budget(self, event: Event, history: History) -> Event:
        """The event, which stops the run where skipping or rewinding has not helped often enough."""
        most = {"skip_step": self.settings.max_skips, "rewind": self.settings.max_rewinds}.get(event.action)
        done = history.skips if event.action == "skip_step" else history.rewinds
        if most is None or done < most:
            return event
        spent = f"{done} steps in a row were skipped" if event.action == "skip_step" else f"{done} rewinds were made"
        option = "max_skips" if event.action == "skip_step" else "max_rewinds"
        return replace(event, action="stop", what=f"{event.what}, and {spent} already (train.health.{option})")
