"""Building a model from a recipe's ``model`` section, and initialising its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from loopkit.components.init import InitContext
from loopkit.errors import UserError
from loopkit.loop.tally import clear_tallies
from loopkit.model.looped import LoopedModel
from loopkit.model.registered import check_registered
from loopkit.model.tie import tie
from loopkit.recipe.format import ModelConfig


def build_model(
    model: ModelConfig,
    *,
    vocabulary: int,
    max_length: int,
    max_loops: int,
    seed: int | None = None,
    device: torch.device | str | None = None,
    mean_loops: float | None = None,
) -> LoopedModel:
    """Build a model.

    Args:
        model: The section of the recipe.
        vocabulary: Number of tokens that the tokenizer has; the section may ask for a larger table.
        max_length: Longest sequence, in tokens.
        max_loops: Most loops in training, >= 1.
        seed: Of the first weights, which come from the section's ``init`` and do not depend on the device. ``None``:
            weights are NaN until they are loaded, so that a missing load is detected. Tallies are empty in any case.
        device: Target device; ``"meta"`` has shapes without values. ``None``: the CPU.
        mean_loops: Mean number of loops for an ``init`` that scales by depth; ``None``: ``max_loops``.

    Raises:
        UserError: If the section's table is too small for the tokenizer, or a component holds modules or tensors that
            it does not register.
    """
    rows = vocabulary if model.vocabulary is None else model.vocabulary
    if rows < vocabulary:
        raise UserError(
            f"model.vocabulary: a table of {rows:,} rows cannot hold the {vocabulary:,} tokens of data.tokenizer; "
            f"set it to at least {vocabulary}, or choose the tokenizer that the table was made for"
        )
    with torch.device("meta"), _SkipInitMode():
        looped = LoopedModel(model, vocabulary=rows, max_length=max_length, max_loops=max_loops)
    check_registered(looped)
    device = torch.device("cpu" if device is None else device)
    if device.type == "meta":
        return looped
    looped.to_empty(device=device)
    tie(looped, looped.ties)  # moving off meta makes a new tensor at every place
    if seed is None:
        _fill_with_nan(looped)
        clear_tallies(looped)  # no file contains them
    else:
        initialise(looped, seed=seed, mean_loops=max_loops if mean_loops is None else mean_loops)
    return looped


def initialise(model: LoopedModel, *, seed: int, mean_loops: float) -> None:
    """Initialise the weights of a model with its section's ``init``.

    Args:
        model: On a real device.
        seed: Equal seeds give equal weights.
        mean_loops: Mean number of loops for an ``init`` that scales by depth.
    """
    scale = InitContext(
        width=model.width,
        num_layers=model.core_layers,
        once_layers=model.layers - model.core_layers,
        max_loops=model.max_loops,
        mean_loops=float(mean_loops),
    )
    model.section.init.build()(model, scale, torch.Generator().manual_seed(seed))


class _SkipInitMode(TorchFunctionMode):
    """Skip the functions of ``torch.nn.init``: ``meta`` has no values, and some of them import torch's compiler there,
    which takes seconds."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return function(*args, **kwargs)


@torch.no_grad()
def _fill_with_nan(model: nn.Module) -> None:
    for value in [*model.parameters(), *model.buffers()]:
        value.fill_(float("nan") if value.is_floating_point() else 0)
