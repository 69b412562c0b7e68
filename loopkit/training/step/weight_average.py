"""The exponential moving average of the trained weights (``train.ema``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from loopkit.components.lr import length_in_steps
from loopkit.recipe.format import EmaConfig
from loopkit.training.step.sharded import part_of, release_gathered


class WeightAverage:
    """An exponential moving average of the trained parameters of a model.

    With the weights w_t after optimizer step t, the average is

        a_t = w_t                                   t <= start
        a_t = decay * a_{t-1} + (1 - decay) * w_t   t > start

    Frozen parameters and buffers are not averaged: the model keeps one copy of them. Parameters under several names
    are averaged once. Every rank averages what it holds of the weights: all of them, or its parts under ZeRO-3.

    Args:
        model: The model, as DeepSpeed trains it; ``requires_grad`` selects the averaged parameters.
        decay: Share of the average that a step keeps, 0 <= decay < 1.
        start: Optimizer steps until which the average equals the weights; at least 1.
    """

    def __init__(self, model: nn.Module, *, decay: float, start: int) -> None:
        self.model, self.start = model, max(start, 1)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._averages = [_held(parameter).detach().clone() for parameter in self._parameters]
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
        weights = [_held(parameter).detach() for parameter in self._parameters]
        if not weights:  # the objective may be all that trains
            return
        if step <= self.start:
            torch._foreach_copy_(self._averages, weights)
        else:
            self._average(self._averages, weights, step)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block, without a copy; it must not train there.

        All ranks must enter and leave together.
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the average from the weights of the whole model, which ``save_weights`` wrote inside ``applied``.

        Args:
            tensors: Averaged weights by name.
        """
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        for parameter, average in zip(self._parameters, self._averages, strict=True):
            average.copy_(part_of(tensors[names[id(parameter)]], parameter))

    def _swap(self) -> None:
        release_gathered(self._parameters)
        # DeepSpeed's flat buffers keep the memory of the weights, which returns before the next update
        for index, parameter in enumerate(self._parameters):
            held = _held(parameter)
            weight = held.data
            held.data = self._averages[index]
            self._averages[index] = weight


def _held(parameter: nn.Parameter) -> Tensor:
    """Return what this rank holds of a parameter: its part under ZeRO-3, else all of it."""
    return getattr(parameter, "ds_tensor", parameter)
