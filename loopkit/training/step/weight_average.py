"""The exponential moving average of the trained weights (``train.ema``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from loopkit.components.lr import length_in_steps
from loopkit.model import load_weights
from loopkit.recipe.format import EmaConfig


class WeightAverage:
    """An exponential moving average of the trained parameters of a model.

    With the weights w_t after optimizer step t, the average is

        a_t = w_t                                   t <= start
        a_t = decay * a_{t-1} + (1 - decay) * w_t   t > start

    Frozen parameters and buffers are not averaged: the model keeps one copy of them. Parameters under several names
    are averaged once. Every rank holds the whole average, which equals that of all other ranks as the weights do.

    Args:
        model: The model, whose parameters are whole on this rank; ``requires_grad`` selects the averaged ones.
        decay: Share of the average that a step keeps, 0 <= decay < 1.
        start: Optimizer steps until which the average equals the weights; at least 1.
    """

    def __init__(self, model: nn.Module, *, decay: float, start: int) -> None:
        self.model, self.start = model, max(start, 1)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._averages = [parameter.detach().clone() for parameter in self._parameters]
        self._average = get_ema_multi_avg_fn(decay)

    @classmethod
    def from_recipe(cls, config: EmaConfig, model: nn.Module, num_steps: int) -> WeightAverage | None:
        """Build the average that a recipe asks for; None if it has none.

        Args:
            config: ``train.ema``.
            model: The model, on its device, with its frozen parameters and the weights of the first step.
            num_steps: Optimizer steps of the whole run.
        """
        if config.decay is None:
            return None
        return cls(model, decay=config.decay, start=round(length_in_steps(config.start, num_steps)))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after an optimizer step; a step that was skipped adds none.

        Args:
            step: Optimizer steps done, from 1.
        """
        weights: list[Tensor] = [parameter.detach() for parameter in self._parameters]
        if not weights:  # the objective may be all that trains
            return
        if step <= self.start:
            torch._foreach_copy_(self._averages, weights)
        else:
            self._average(self._averages, weights, step)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block, without a copy; it must not train there."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def load(self, path: Path) -> None:
        """Load the average from a weights file of the whole model, which ``save_weights`` wrote inside ``applied``.

        Raises:
            WeightsError: If the file cannot be read or does not fit the model.
        """
        with self.applied():
            load_weights(self.model, path)

    def _swap(self) -> None:
        # ZeRO's flat buffers keep the memory of the weights, which returns before the next update
        for index, parameter in enumerate(self._parameters):
            weight = parameter.data
            parameter.data = self._averages[index]
            self._averages[index] = weight
