"""PonderNet with drawn stops and adaptive computation time, as a plugin would write them.

Dims: K loops, B sequences, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.components.gate import Gate
from loopkit.components.regularizer import Regularized, Regularizer, over_tokens
from loopkit.loop import PAD, Step, Trajectory, widen
from loopkit.registry import Share, register

STREAM = 0x504E


def halting_B(t: Trajectory, k: int) -> Tensor:
    """Probability of a sequence to stop after loop ``k``: that of its real tokens' mean logit."""
    real = t.batch.positions < PAD
    return ((t.gate(k) * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)).sigmoid()


class _Linear(Gate):
    def __init__(self, width: int, bias: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        self.bias = bias

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return widen(self.linear(s).squeeze(-1)) + self.bias


@register(
    "gate", "ponder", paper="arXiv:2107.05407", provides={"gate"}, noise="training", causal="evaluation", stops=True
)
class PonderGate(_Linear):
    """Stops are drawn in training.

    stop after loop k with probability lambda_k = sigmoid(mean of g_k)

    Args:
        bias: Added to the logit.
    """

    def __init__(self, width: int, *, bias: float = 0.0) -> None:
        super().__init__(width, bias)

    def stop(self, t: Trajectory, k: int) -> Tensor | None:
        drawn_B = t.loop_noise(k).fold(STREAM).uniform()[:, 0]
        return drawn_B < halting_B(t, k)


@register("gate", "act", paper="arXiv:1603.08983", provides={"gate"}, causal="evaluation", stops=True)
class ActGate(_Linear):
    """A sequence stops once its probabilities add up.

    stop after loop k if sum_{j <= k} p_j > 1 - eps

    Args:
        bias: Added to the logit.
        eps: What may be missing.
    """

    def __init__(self, width: int, *, bias: float = 0.0, eps: Share = 0.01) -> None:
        super().__init__(width, bias)
        self.eps = eps

    def stop(self, t: Trajectory, k: int) -> Tensor | None:
        return sum(halting_B(t, j) for j in range(1, k + 1)) > 1 - self.eps


@register("core", "act_core", needs={"gate"})
class ActCore(Core):
    """Each token takes the share of the block's update that its halting probabilities leave.

    s = u + p (block(u) - u),   p = min(sigmoid(g(block(u))), what earlier loops left)
    """

    def __init__(self, block: Callable[[], Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block()])

    def forward(self, u: Tensor, step: Step) -> Tensor:
        new = self.blocks[0](u, step)
        spent = step.earlier.get("spent", torch.zeros_like(u[..., 0]))
        p = torch.minimum(step.gate(new).sigmoid().to(u.dtype), 1 - spent)
        step.records["spent"] = spent + p
        return u + p[..., None] * (new - u)


@register("regularizer", "ponder_cost", needs={"gate"})
class PonderCost(Regularizer):
    """Keep the stops near a geometric distribution, and the probability of the loops run likely.

    R = mean over tokens of KL(Bernoulli(lambda_k) || Bernoulli(prior)), over the loops that the sequence ran

    Args:
        weight: Coefficient, dimensionless, >= 0.
        prior: Probability of stopping in a loop.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: NonNegativeFloat = 0.1, prior: PositiveFloat = 0.3) -> None:
        super().__init__()
        self.weight, self.prior = weight, prior

    def forward(self, t: Trajectory) -> Regularized:
        kl, probability, count = (torch.zeros_like(t.gate(1)) for _ in range(3))
        for k in range(1, t.reached + 1):
            ran, g = t.active(k), t.gate(k)
            here = torch.ones_like(g) if ran is None else ran[:, None].expand_as(g).to(g.dtype)
            p = g.sigmoid()
            stay = (F.logsigmoid(-g) - torch.tensor(1 - self.prior).log()) * (1 - p)
            kl = kl + here * (p * (F.logsigmoid(g) - torch.tensor(self.prior).log()) + stay)
            probability, count = probability + here * p, count + here
        value = over_tokens(kl / count, t)
        return Regularized(value, {"probability": over_tokens(probability / count, t).detach()})
