"""The figures of an early-exit benchmark as plain values for JSON; ``not_finite`` lists the omitted ones."""

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
    "seconds": "of every timed run over the slice; the contenders alternate",
    "tokens_per_s": "tokens of the slice / median of seconds; reading out, scoring and deciding included, no cache",
    "speed_up": "tokens_per_s with the exit / tokens_per_s of all loops",
    "ppl_change": "token_ppl with the exit / token_ppl of all loops - 1",
    "average_loops": "mean over sequences of the loops that each ran",
    "exits_by_loop": "sequences that stopped after loop 1, 2, ...",
    "core_calls": "calls of the core in a run over the slice, counted",
    "core_sequences": "sequences in these calls together, counted",
    "threshold": "in units of the exit's score, mean over a sequence's tokens; absent if no sequence may stop early",
}


def finite_figures(figures: Mapping[str, float]) -> dict[str, Any]:
    """Return the finite figures, and under ``not_finite`` the names of the other figures."""
    result = {name: value for name, value in figures.items() if math.isfinite(value)}
    not_finite = [name for name in figures if name not in result]
    return result | ({"not_finite": not_finite} if not_finite else {})


def loss_figures(loss: float) -> dict[str, float]:
    """Return a loss in nats per token, with its perplexity."""
    return Perplexity().total([{"nll": loss, "tokens": 1}])


def contender_figures(timing: ContenderTiming, tokens: int, num_scored: int) -> dict[str, float]:
    """Return loss, perplexity and throughput of a contender.

    Args:
        timing: The contender's runs.
        tokens: Number of tokens in the slice, without padding.
        num_scored: Number of scored tokens.
    """
    return loss_figures(timing.scored.nll / num_scored) | {"tokens_per_s": tokens / timing.median_seconds}


def exit_row(
    exit: Exit, choice: Choice, timing: ContenderTiming, full: ContenderTiming, loops: int, tokens: int, num_scored: int
) -> dict[str, Any]:
    """Build the row of one exit.

    Args:
        exit: The exit.
        choice: Its threshold.
        timing: Runs of the timed slice with the exit.
        full: Runs of the timed slice with all loops.
        loops: Maximum number of loops.
        tokens: Number of tokens in the timed slice, without padding.
        num_scored: Number of scored tokens.
    """
    depth = timing.scored.depth
    figures = contender_figures(timing, tokens, num_scored) | {
        "average_loops": depth.double().mean().item(),
        "speed_up": full.median_seconds / timing.median_seconds,
    }
    figures["ppl_change"] = loss_figures((timing.scored.nll - full.scored.nll) / num_scored)["token_ppl"] - 1
    return {
        "type": type(exit).registration.name,  # type: ignore[attr-defined]
        "level": "sequence",
        **_threshold(choice.chosen),
        **finite_figures(figures),
        "exits_by_loop": torch.bincount(depth, minlength=loops + 1)[1:].tolist(),
        "core_calls": timing.core_calls,
        "core_sequences": timing.core_sequences,
        "seconds": timing.seconds,
        "calibration": {
            **finite_figures(_trial(choice.chosen)),
            "bound": finite_figures(loss_figures(choice.loss_bound)),
            "tried": [_threshold(trial) | finite_figures(_trial(trial)) for trial in choice.trials],
        },
    }


def _threshold(trial: Trial) -> dict[str, float]:
    return {} if trial.threshold == NEVER else {"threshold": trial.threshold}


def _trial(trial: Trial) -> Mapping[str, float]:
    return {"average_loops": trial.average_loops} | loss_figures(trial.loss)
