"""When inference stops looping. Dims: B sequences, T tokens, D width, V vocabulary, S any further streams."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, NonPositiveFloat, PositiveInt
from torch import Tensor

from loopkit.loop import PAD, Batch, Trajectory, widen
from loopkit.registry import Share, register


class Exit(ABC):
    """Scores after each loop how ready each token is to stop. ``evaluation/`` calibrates and counts.

    It reads ``t.logits(k)``, ``t.gate(k)`` and the like without ``at``: the caller
    fixes which loop counts as the last. The last loop of a run stops all remaining sequences, so it is never scored.

    Attributes:
        threshold: A sequence stops after the first loop whose ``sequence_score`` is at least this.
    """

    threshold: float

    @abstractmethod
    def score(self, t: Trajectory, k: int) -> Tensor:
        """Readiness after loop ``k`` >= 1, ``[B, T]`` fp32, larger = readier.

        It looks at loops up to ``k`` alone. What compares with an earlier loop gives minus infinity at ``k`` = 1.
        """


def sequence_score(score_BT: Tensor, batch: Batch) -> Tensor:
    """Readiness of whole sequences: the mean over their tokens, padding left out.

    C = 1/n sum_t c_t

    Shapes: ``[B, T]`` to ``[B]``; minus infinity stays minus infinity.
    """
    real = batch.positions < PAD
    return score_BT.masked_fill(~real, 0.0).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def _first_loop(t: Trajectory) -> Tensor:
    """The score where there is no earlier loop to compare with: nobody is ready."""
    return torch.full(t.batch.tokens.shape, float("-inf"), device=t.batch.device)


@register("exit", "depth", short="loops")
class Depth(Exit):
    """Stop after a fixed number of loops: the baseline of every other exit.

    c_k = k                                          loops

    Args:
        loops: After how many.
    """

    def __init__(self, *, loops: PositiveInt = 1) -> None:
        self.threshold = float(loops)

    def score(self, t: Trajectory, k: int) -> Tensor:
        return torch.full(t.batch.tokens.shape, float(k), device=t.batch.device)


@register("exit", "logit_margin", paper="arXiv:2606.24898")
class LogitMargin(Exit):
    """Stop when the most likely token is far ahead of the runner-up.

    c_k = z_(1) - z_(2) = ln p_(1) - ln p_(2)        nats, >= 0

    Args:
        threshold: Least distance of the two largest logits, in nats; 2 says that the first is 7.4 times as likely.

    Paper:
        arXiv:2606.24898. There too a sequence's score is the mean over its tokens.
    """

    def __init__(self, *, threshold: NonNegativeFloat = 2.0) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        top = t.logits(k).topk(2, dim=-1).values
        return (top[..., 0] - top[..., 1]).float()


@register("exit", "max_prob", paper="arXiv:2606.24898")
class MaxProb(Exit):
    """Stop when the most likely token is likely enough.

    c_k = max_v p_k(v)                               0 to 1

    Args:
        threshold: Least probability of the most likely token.
    """

    def __init__(self, *, threshold: Share = 0.9) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        logits = t.logits(k)
        return (logits.amax(dim=-1) - logits.logsumexp(dim=-1)).exp().float()


@register("exit", "entropy", paper="arXiv:2606.24898")
class Entropy(Exit):
    """Stop when the prediction is certain.

    c_k = -H(p_k) = sum_v p_k(v) ln p_k(v)           nats, -ln V to 0

    Args:
        threshold: Minus the largest entropy that is certain enough, in nats.
    """

    def __init__(self, *, threshold: NonPositiveFloat = -1.0) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        log_p = t.logits(k).log_softmax(dim=-1)
        return (log_p.exp() * log_p).sum(dim=-1).float()


@register("exit", "gate_cdf", paper="arXiv:2510.25741", needs={"gate"})
class GateCdf(Exit):
    """Stop when the cumulative stop probability of the gate reaches the threshold.

    c_k = 1 - prod_{j<=k} (1 - sigmoid(g_j))         0 to 1, never falls with k

    Args:
        threshold: Least probability of having stopped by then; 1 runs all loops unless the gate is saturated.

    Paper:
        arXiv:2510.25741. There tokens stop one by one; a sequence's score is the mean over its tokens.
    """

    def __init__(self, *, threshold: Share = 0.5) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        stay = torch.stack([F.logsigmoid(-widen(t.gate(j))) for j in range(1, k + 1)]).sum(dim=0)
        return -torch.expm1(stay).float()


@register("exit", "kl", paper="arXiv:2502.05171")
class Kl(Exit):
    """Stop when another loop no longer changes the prediction.

    c_k = -KL(p_{k-1} || p_k) = sum_v p_{k-1}(v) (ln p_k(v) - ln p_{k-1}(v))        nats, <= 0

    Args:
        threshold: Minus the largest divergence that counts as no change, in nats.

    Paper:
        arXiv:2502.05171. The direction is that of its released code.
    """

    def __init__(self, *, threshold: NonPositiveFloat = -1e-3) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        if k == 1:
            return _first_loop(t)
        before, after = (t.logits(j).log_softmax(dim=-1) for j in (k - 1, k))
        return (before.exp() * (after - before)).sum(dim=-1).float()


@register("exit", "state_delta", paper="arXiv:2502.05171")
class StateDelta(Exit):
    """Stop when another loop no longer moves the state; it needs no logits, so it is cheap.

    c_k = -||s_k - s_{k-1}|| / ||s_k||               dimensionless, <= 0

    Args:
        threshold: Negated relative change below which the state counts as converged.

    Paper:
        arXiv:2502.05171. The norm is over the streams of a token too, where there are several.
    """

    def __init__(self, *, threshold: NonPositiveFloat = -0.03) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        if k == 1:
            return _first_loop(t)
        before, after = (widen(t.state(j)).flatten(2) for j in (k - 1, k))
        size = after.norm(dim=-1)
        step = (after - before).norm(dim=-1)
        # a state of exactly zero has no direction: it moved unless it was zero before
        return -torch.where(size > 0, step / size, torch.where(step > 0, torch.inf, 0.0)).float()
