"""Generation that stops looping early, for each token or once for a sequence.

Dims: B sequences, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from loopkit.components.exit import Exit
from loopkit.inference.active_sequences import ActiveSequences
from loopkit.inference.early_exit import exit_early
from loopkit.inference.trajectory_view import TrajectoryView
from loopkit.loop import Loops, Trajectory


@dataclass(frozen=True)
class ExitRule:
    """When generation stops looping.

    Args:
        exit: Scores a token after each loop.
        level: ``token``: the prompt runs all loops, and every new token stops on its own. ``sequence``: the mean score
            of the prompt's tokens decides once for the prompt and all its new tokens.
        threshold: Replaces the exit's own.

    A token has no keys and values in loops that it skipped: later tokens do not attend to it there.
    """

    exit: Exit
    level: Literal["token", "sequence"] = "token"
    threshold: float | None = None


@dataclass
class ExitingSequences(ActiveSequences):
    """Sequences that stop looping when an exit says so; ``depth`` is the maximum.

    Args:
        rule: When.
    """

    rule: ExitRule

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own_depth_B: Tensor | None = None
        self._is_prompt = True

    def run(self) -> tuple[Tensor, Tensor]:
        is_prompt, self._is_prompt = self._is_prompt, False
        if self.rule.level == "token":
            return self._run_prompt() if is_prompt else self._run_exit(self.rule.exit, self.rule.threshold)
        if self._own_depth_B is not None:
            return self._run_exit(_OwnDepth(self._own_depth_B), 0.0)
        logits, self._own_depth_B = self._run_exit(self.rule.exit, self.rule.threshold)
        return logits, self._own_depth_B

    def narrow(self, rows: Tensor) -> None:
        super().narrow(rows)
        if self._own_depth_B is not None:
            self._own_depth_B = self._own_depth_B[rows]

    def _run_prompt(self) -> tuple[Tensor, Tensor]:
        """Run all loops, and read each, so that tokens that exit there find the prompt in a coda's slots."""

        def read(t: Trajectory, k: int) -> None:
            t.readout(k, k)

        loops, noise_key = Loops.fixed(self.depth), (self.sampling.seed, 0)
        t = self.model.run(self.batch, loops, after_loop=read, noise_key=noise_key, cache=self.cache)
        return self.model.head(t.readout(self.depth)[:, -1]), torch.full((len(self.batch),), self.depth)

    def _run_exit(self, exit: Exit, threshold: float | None) -> tuple[Tensor, Tensor]:
        exited = exit_early(
            self.model,
            self.batch,
            exit,
            self.depth,
            threshold=threshold,
            answer=lambda t, k: self.model.head(t.readout(k)[:, -1]),
            cache=self.cache,
            noise_key=(self.sampling.seed, 0),
        )
        return exited.answer, exited.depth


class _OwnDepth(Exit):
    """Stops each sequence after its own number of loops, ``[B]``."""

    threshold = 0.0

    def __init__(self, depth_B: Tensor) -> None:
        self.depth_B = depth_B

    def score(self, t: Trajectory, k: int) -> Tensor:
        """The loops past the sequence's own number, ``[b, T]``."""
        index = t.index if isinstance(t, TrajectoryView) else None
        depth_b = self.depth_B if index is None else self.depth_B[index]
        return (k - depth_b)[:, None].expand(t.batch.tokens.shape).float()
