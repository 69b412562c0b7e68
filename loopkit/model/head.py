"""The output matrix."""

from __future__ import annotations

from torch import Tensor, nn

from loopkit.model.cross_entropy import linear_logits, linear_nll


class Head(nn.Linear):
    """Logits, or directly the loss of labels.

    Computes in the precision of its input, so that a state read in fp64 is scored in fp64; under autocast the operands
    are rounded. Sums are never narrower than fp32, and neither logits nor losses are rounded after them.

    Args:
        width: Channels of the readout.
        vocabulary: Number of tokens.
        bias: Whether logits have a bias.
    """

    def __init__(self, width: int, vocabulary: int, *, bias: bool = False) -> None:
        super().__init__(width, vocabulary, bias=bias)

    def forward(self, z: Tensor, labels: Tensor | None = None, row_weight: Tensor | float | None = None) -> Tensor:
        """Logits of readouts, or the negative log-likelihood of labels.

        Args:
            z: Readouts.
            labels: What to score; ``None`` gives logits.
            row_weight: The gradient that each value will receive, up to one factor, see ``linear_nll``.

        Shapes:
            z: ``[..., D]``; labels and row_weight: ``[...]``; logits: ``[..., V]``; nll: ``[...]``.
        """
        if labels is not None:
            return linear_nll(z, self.weight, self.bias, labels, row_weight)
        return linear_logits(z, self.weight, self.bias)
