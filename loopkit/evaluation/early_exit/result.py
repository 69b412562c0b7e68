"""The figures of an early-exit benchmark as plain values for JSON; what is not finite is left out and named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from loopkit.components.exit import Exit
from loopkit.components.task import Perplexity
from loopkit.evaluation.early_exit.calibration import NEVER, Choice, Trial
from loopkit.evaluation.early_exit.timing import ContenderTiming

UNITS = {
    "loss": "nats per scored token of the slice",
    "token_ppl": "exp(loss)",
    "seconds": "of every timed run over the slice, the contenders taking turns",
    "tokens_per_s": "tokens of the slice / median of seconds; reading out, scoring and deciding included, no cache",
    "speed_up": "tokens_per_s with the exit / tokens_per_s of all loops",
    "ppl_change": "token_ppl with the exit / token_ppl of all loops - 1",
    "average_loops": "mean over sequences of the loops that each ran",
    "exits_by_loop": "sequences that stopped after loop 1, 2, ...",
    "core_calls": "calls of the core in a run over the slice, counted",
    "core_sequences": "sequences in these calls together, counted",
    "threshold": "in units of the exit's score, mean over a sequence's tokens; absent where nobody may stop early",
}


def finite(figures: Mapping[str, float]) -> dict[str, Any]:
    """The figures that are finite, and ``not_finite``: the names of the others, if any."""
    known = {name: value for name, value in figures.items() if math.isfinite(value)}
    lost = [name for name in figures if name not in known]
    return known | ({"not_finite": lost} if lost else {})


def cost(loss: float) -> dict[str, float]:
    """A loss in nats per token, with its perplexity."""
    return Perplexity().total([{"nll": loss, "tokens": 1}])


def contest(outcome: ContenderTiming, tokens: int, scored: int) -> dict[str, float]:
    """What a contender cost and how fast it was.

    Args:
        outcome: Of the contender.
        tokens: In the slice, padding left out.
        scored: How many of them are scored.
    """
    return cost(outcome.scored.nll / scored) | {"tokens_per_s": tokens / outcome.median_seconds}


def exit_row(
    exit: Exit, choice: Choice, outcome: ContenderTiming, full: ContenderTiming, loops: int, tokens: int, scored: int
) -> dict[str, Any]:
    """Everything found about one exit.

    Args:
        exit: The exit.
        choice: Its threshold.
        outcome: Of the timed slice with it.
        full: Of the timed slice at all loops.
        loops: All loops.
        tokens: In the timed slice, padding left out.
        scored: How many of them are scored.
    """
    depth = outcome.scored.depth
    figures = contest(outcome, tokens, scored) | {
        "average_loops": depth.double().mean().item(),
        "speed_up": full.median_seconds / outcome.median_seconds,
    }
    figures["ppl_change"] = cost((outcome.scored.nll - full.scored.nll) / scored)["token_ppl"] - 1
    return {
        "type": type(exit).registration.name,  # type: ignore[attr-defined]
        "level": exit.level,
        **_threshold(choice.chosen),
        **finite(figures),
        "exits_by_loop": torch.bincount(depth, minlength=loops + 1)[1:].tolist(),
        "core_calls": outcome.core_calls,
        "core_sequences": outcome.core_sequences,
        "seconds": outcome.seconds,
        "calibration": {
            **finite(_trial(choice.chosen)),
            "bound": finite(cost(choice.loss_bound)),
            "tried": [_threshold(trial) | finite(_trial(trial)) for trial in choice.trials],
        },
    }


def _threshold(trial: Trial) -> dict[str, float]:
    return {} if trial.threshold == NEVER else {"threshold": trial.threshold}


def _trial(trial: Trial) -> Mapping[str, float]:
    return {"average_loops": trial.average_loops} | cost(trial.loss)
