"""Regularizers of the recurrence's Jacobian, J = d c_{k+1} / d c_k at the state that the run ended in.

One random product does not measure the spectral radius: for a unit vector v of n random coordinates,
E ||J v||² = ||J||_F² / n. The probe ``spectral`` measures the radius.

Letters: B sequences, T tokens, D width, S any further streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from loopkit.components.regularizer import Regularizer
from loopkit.loop import PAD, Trajectory, widen
from loopkit.registry import register

Scope = Literal["sample", "batch", "token"]

_MEAN_OVER: dict[Scope, Literal["tokens", "sequences", "micro_batch"]] = {
    "token": "tokens",
    "sample": "sequences",
    "batch": "micro_batch",
}

_STREAM = 0x4A53  # of the random vectors, away from those of loops
_TINY = 1e-30


@register("regularizer", "jsrr", paper="arXiv:2605.26733", needs={"double_backward"}, lengths={"start_step"})
class JSRR(Regularizer):
    """Penalise how much one more loop stretches a random direction of the state (STARS).

    R = mean over sequences of ||J v||²,  v ~ N(0, 1) scaled to unit length

    J is taken at the last state of the step, through one extra application of the recurrence with math attention. The
    random vectors belong to the samples, so with ``scope: sample`` no split of the batch changes R. Padding has no part
    in v.

    Args:
        weight: Its coefficient, >= 0.
        mix: convex gives (1 - weight) * supervised + weight * R, additive leaves the supervised part whole.
        preset: What the three options below are where they are null. paper: jvp, sample, from the first step. code:
            vjp, batch, from step 2000, as the released addition code has it.
        product: J v or v^T J: the same value on average, the latter cheaper.
        scope: What has unit length: each sequence's vector, the whole micro-batch's, or each token's.
        start_step: First optimizer step at which it counts.
        power_iterations: Products in a row, each on the last one's direction; R is of the last.
        power_grad: Which products carry gradient.
        detach: Take the state as given, so that the gradient reaches parameters through the extra application alone.
        dropout: Whether dropout acts in the extra application.
        every: Count once in so many steps.

    Paper: STARS prints both mixes; its code is convex, and in its code padding takes part. Weights of 0.15 and more
    kept its addition experiment from learning.
    """

    def __init__(
        self,
        *,
        weight: NonNegativeFloat = 0.1,
        mix: Literal["convex", "additive"] = "convex",
        preset: Literal["paper", "code"] = "paper",
        product: Literal["jvp", "vjp"] | None = None,
        scope: Scope | None = None,
        start_step: NonNegativeInt | None = None,
        power_iterations: PositiveInt = 1,
        power_grad: Literal["last", "all"] = "last",
        detach: bool = True,
        dropout: bool = True,
        every: PositiveInt = 1,
    ) -> None:
        super().__init__()
        of_paper = preset == "paper"
        self.weight, self.mix = weight, mix
        self.product = product if product is not None else ("jvp" if of_paper else "vjp")
        self.scope: Scope = scope if scope is not None else ("sample" if of_paper else "batch")
        self.start_step = start_step if start_step is not None else (0 if of_paper else 2000)
        self.power_iterations, self.power_grad = power_iterations, power_grad
        self.detach, self.dropout, self.every = detach, dropout, every
        self.mean_over = _MEAN_OVER[self.scope]

    def active(self, optimizer_step: int) -> bool:
        since = optimizer_step - self.start_step
        return since >= 0 and since % self.every == 0

    def forward(self, t: Trajectory) -> Tensor:
        with _recurrence(t, detach=self.detach, dropout=self.dropout) as (c, transposed):
            v = unit(random_vector(t, c, 0), self.scope)
            if self.product == "jvp":
                return self._of_jvp(t, v, transposed, _jvp(transposed, c, _real(t, c)))
            for _ in range(self.power_iterations - 1):
                v = unit(transposed(v), self.scope)
                v = v.detach() if self.power_grad == "last" else v
            return stretch(transposed(v), t, self.scope)

    def _of_jvp(self, t: Trajectory, v: Tensor, transposed: Product, forward: Product) -> Tensor:
        """R of w_i = J v_{i-1}, v_i = w_i / ||w_i||, with its gradient put together from products J^T λ.

        dR = sum_i <λ_i, dJ v_{i-1}>,  λ_n = dR / dw_n,  λ_{i-1} = (dv_{i-1} / dw_{i-1})^T J^T λ_i

        So nothing is differentiated three times, nor forwards and then backwards: there torch's layer_norm has a
        wrong gradient and says nothing, and softmax has none (torch 2.13).
        """
        vs, ws = [v], []
        for _ in range(self.power_iterations):
            ws.append(forward(vs[-1]).requires_grad_())
            vs.append(unit(ws[-1], self.scope).detach())
        value = stretch(ws[-1], t, self.scope)
        (adjoint,) = torch.autograd.grad(value, ws[-1])
        value = value.detach()
        for i in reversed(range(self.power_iterations)):
            pulled = transposed(adjoint)
            change = (widen(pulled) * vs[i]).sum()
            value = value + change - change.detach()
            if i == 0 or self.power_grad == "last":
                break
            (adjoint,) = torch.autograd.grad(unit(ws[i - 1], self.scope), ws[i - 1], pulled.detach())
        return value


@register("regularizer", "jacobian_frobenius", paper="arXiv:2106.14342", needs={"double_backward"})
class JacobianFrobenius(Regularizer):
    """Penalise the Frobenius norm of the recurrence's Jacobian, estimated by random products (Hutchinson).

    R = mean over vectors and sequences of ||v^T J||² / n,  v ~ N(0, 1);  E R = ||J||_F² / n

    n is the number of coordinates of a sequence's state, padding left out.

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
        vectors: Random vectors of each sequence.
        detach: Take the state as given, so that the gradient reaches parameters through the extra application alone.
        dropout: Whether dropout acts in the extra application.

    Paper: Deep equilibrium models, which differentiate at the fixed point; here at the last state of the step.
    """

    def __init__(
        self, *, weight: NonNegativeFloat = 1.0, vectors: PositiveInt = 1, detach: bool = True, dropout: bool = True
    ) -> None:
        super().__init__()
        self.weight, self.vectors, self.detach, self.dropout = weight, vectors, detach, dropout

    def forward(self, t: Trajectory) -> Tensor:
        with _recurrence(t, detach=self.detach, dropout=self.dropout) as (c, transposed):
            size = _real(t, c).flatten(1).sum(1).clamp(min=1) * c[0, 0].numel()
            squares = [_square(transposed(random_vector(t, c, number))) / size for number in range(self.vectors)]
            return torch.stack(squares).mean()


Product = Callable[[Tensor], Tensor]


@contextmanager
def _recurrence(t: Trajectory, *, detach: bool, dropout: bool) -> Iterator[tuple[Tensor, Product]]:
    """The state at which the recurrence is differentiated, and ``v -> v^T J`` there, which carries gradient."""
    with torch.enable_grad(), _training(t.model, bool(t.model.training and dropout)):
        c = t.carried(t.reached)
        c = c.detach().requires_grad_() if detach or not c.requires_grad else c
        after = t.step(c)

        def transposed(v: Tensor) -> Tensor:
            (found,) = torch.autograd.grad(after, c, v.to(after.dtype), create_graph=True)
            return found

        yield c, transposed


def _jvp(transposed: Product, c: Tensor, real: Tensor) -> Product:
    """``v -> J v`` without gradient: the derivative of ``u -> u^T J``, which is linear."""
    u = torch.zeros_like(c).requires_grad_()
    of_u = transposed(u)

    def forward(v: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(of_u, u, v.to(of_u.dtype), retain_graph=True)
        return found.detach() * real

    return forward


@contextmanager
def _training(model: object, mode: bool) -> Iterator[None]:
    """The model in training or evaluation mode for a while, each part back in its own afterwards."""
    before = [(part, part.training) for part in model.modules()] if isinstance(model, nn.Module) else []
    try:
        for part, was in before:
            part.training = was and mode
        yield
    finally:
        for part, was in before:
            part.training = was


def random_vector(t: Trajectory, c: Tensor, number: int) -> Tensor:
    """Standard normal numbers in the shape of the state, ``[B, T, *S, D]``, 0 at padding.

    A function of seed, optimizer step, sample, position and ``number`` alone.
    """
    return t.noise.fold(_STREAM).fold(number).normal(*c.shape[2:]).to(c.dtype) * _real(t, c)


def _real(t: Trajectory, c: Tensor) -> Tensor:
    """1 at tokens, 0 at padding, ``[B, T]`` shaped to meet the state."""
    return (t.batch.positions < PAD).to(c.dtype).view(*c.shape[:2], *(1,) * (c.dim() - 2))


def unit(v: Tensor, scope: Scope) -> Tensor:
    """Unit length over what ``scope`` says; zeros stay zeros."""
    if scope == "batch":
        return v / v.norm().clamp(min=_TINY)
    dims = tuple(range(1 if scope == "sample" else 2, v.dim()))
    return v / torch.linalg.vector_norm(v, dim=dims, keepdim=True).clamp(min=_TINY)


def stretch(w: Tensor, t: Trajectory, scope: Scope) -> Tensor:
    """Squared length of what became of unit vectors; the mean over sequences, or tokens, if they are of unit length."""
    if scope == "batch":
        return widen(w).square().sum()
    if scope == "sample":
        return _square(w).mean()
    return _square(w).sum() / _real(t, w).sum().clamp(min=1)


def _square(w: Tensor) -> Tensor:
    """Squared length of each sequence's vector, ``[B]``."""
    return widen(w).square().flatten(1).sum(1)
