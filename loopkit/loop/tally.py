"""Sums over the tokens of an optimizer step, from which components set buffers that follow the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn


class Tally(nn.Module):
    """Sums of values and how many there were, over all micro-batches and ranks of an optimizer step.

    A component whose buffers follow the data adds to a tally in ``forward``, in training, and sets the buffers in
    ``update_buffers()``, which the trainer calls once at the end of each optimizer step. So buffers are constant within
    a step, equal on every rank, and do not depend on the micro-batch. The sums are fp64 and in no checkpoint. A loop
    that is recomputed in the backward pass is added twice: use ``mean()`` and not the sums.

    Args:
        size: Number of bins.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.register_buffer("sums", torch.empty(size, dtype=torch.float64), persistent=False)
        self.register_buffer("counts", torch.empty(size, dtype=torch.float64), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset sums and counts to zero."""
        self.sums.zero_()
        self.counts.zero_()

    @torch.no_grad()
    def add(self, values: Tensor, counted: Tensor, bins: Tensor | None = None) -> None:
        """Add the values of some tokens.

        Args:
            values: ``[B, T, ...]`` or any other shape.
            counted: bool, of the first dimensions of ``values``: which of them count. Those of
                ``step.counted`` should.
            bins: int64, of the first dimensions too: the bin of each value, 0 to ``size - 1``; ``None``: bin 0.
        """
        counted = _over_last(counted, values).flatten()
        index = torch.zeros_like(counted, dtype=torch.int64) if bins is None else _over_last(bins, values).flatten()
        index = index.where(counted, 0)  # a value that does not count may have no bin, or not be finite
        self.sums.index_add_(0, index, values.flatten().to(self.sums.dtype).where(counted, 0))
        self.counts.index_add_(0, index, counted.to(self.counts.dtype))

    def mean(self) -> Tensor:
        """Mean of each bin, ``[size]``; NaN for an empty bin."""
        return self.sums / self.counts


def _over_last(first: Tensor, values: Tensor) -> Tensor:
    """Return a tensor of the first dimensions of ``values``, the same for all its further ones."""
    return first.reshape(*first.shape, *(1,) * (values.dim() - first.dim())).expand_as(values)


def tallies(module: nn.Module) -> Iterator[Tally]:
    """Yield all tallies in a module."""
    return (part for part in module.modules() if isinstance(part, Tally))


@torch.no_grad()
def update_buffers(module: nn.Module, reduce: Callable[[Tensor], object] | None = None) -> None:
    """Update the buffers of every component from its tallies, and reset these, at the end of an optimizer step.

    Args:
        module: The trained module. Call this after ``optimizer.step()`` in a custom training loop; ``loopkit train``
            calls it itself.
        reduce: Sums a tensor over ranks, in place; ``None``: a single rank.
    """
    all_tallies = list(tallies(module))
    if all_tallies and reduce is not None:
        parts = [part for tally in all_tallies for part in (tally.sums, tally.counts)]
        joined = torch.cat(parts)
        reduce(joined)
        for part, total in zip(parts, joined.split([len(part) for part in parts]), strict=True):
            part.copy_(total)
    for component in module.modules():
        update = getattr(component, "update_buffers", None)
        if callable(update):
            update()
    clear_tallies(module)


def clear_tallies(module: nn.Module) -> None:
    """Reset all tallies of a module after a skipped step."""
    for tally in tallies(module):
        tally.reset_parameters()
