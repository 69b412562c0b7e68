"""Regularizers of the recurrence's Jacobian, J = d c_{k+1} / d c_k at the state that the run ended in.

One random product does not measure the spectral radius: for a unit vector v of n random coordinates,
E ||J v||² = ||J||_F² / n. The probe ``spectral`` measures the radius.

Dims: B sequences, T tokens, D width, S any further streams.
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
        preset: Defaults of product, scope and start_step. paper: jvp, sample, from the first step. code: vjp, batch,
            from step 2000, as in the released code for addition.
        product: J v or v^T J: the same value on average, the latter cheaper.
        scope: What has unit length: each sequence's vector, the whole micro-batch's, or each token's.
        start_step: First optimizer step at which it counts.
        power_iterations: Steps of the power iteration; R is taken at the last. 1 is the paper's penalty.
        power_grad: Which products carry gradient.
        detach: Treat the state as a constant: the gradient reaches parameters only through the extra application.
        dropout: Whether dropout acts in the extra application.
        every: Compute it every N steps.

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
        with _recurrence(t, detach=self.detach, dropout=self.dropout) as (c, vjp):
            v = normalize(random_vector(t, c, 0), self.scope)
            if self.product == "jvp":
                return self._penalty_of_jvp(t, v, vjp, _build_jvp(vjp, c, _token_mask(t, c)))
            for _ in range(self.power_iterations - 1):
                v = normalize(vjp(v), self.scope)
                v = v.detach() if self.power_grad == "last" else v
            return squared_length(vjp(v), t, self.scope)

    def _penalty_of_jvp(self, t: Trajectory, v: Tensor, vjp: Product, jvp: Product) -> Tensor:
        """Compute R of w_i = J v_{i-1}, v_i = w_i / ||w_i||, with its gradient put together from products J^T λ.

        dR = sum_i <λ_i, dJ v_{i-1}>,  λ_n = dR / dw_n,  λ_{i-1} = (dv_{i-1} / dw_{i-1})^T J^T λ_i

        So nothing is differentiated three times, nor forwards and then backwards: in torch 2.13, layer_norm then has a
        wrong gradient without an error, and softmax has none.
        """
        vs, ws = [v], []
        for _ in range(self.power_iterations):
            ws.append(jvp(vs[-1]).requires_grad_())
            vs.append(normalize(ws[-1], self.scope).detach())
        value = squared_length(ws[-1], t, self.scope)
        (adjoint,) = torch.autograd.grad(value, ws[-1])
        value = value.detach()
        for i in reversed(range(self.power_iterations)):
            pulled = vjp(adjoint)
            change = (widen(pulled) * vs[i]).sum()
            value = value + change - change.detach()
            if i == 0 or self.power_grad == "last":
                break
            (adjoint,) = torch.autograd.grad(normalize(ws[i - 1], self.scope), ws[i - 1], pulled.detach())
        return value


@register("regularizer", "jacobian_frobenius", paper="arXiv:2106.14342", needs={"double_backward"})
class JacobianFrobenius(Regularizer):
    """Penalise the Frobenius norm of the recurrence's Jacobian, estimated by random products (Hutchinson).

    R = mean over vectors and sequences of ||v^T J||² / n,  v ~ N(0, 1);  E R = ||J||_F² / n

    n is the number of coordinates of a sequence's state, padding left out.

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
        vectors: Random vectors of each sequence.
        detach: Treat the state as a constant: the gradient reaches parameters only through the extra application.
        dropout: Whether dropout acts in the extra application.

    Paper: Deep equilibrium models, which differentiate at the fixed point; here at the last state of the step.
    """

    def __init__(
        self, *, weight: NonNegativeFloat = 1.0, vectors: PositiveInt = 1, detach: bool = True, dropout: bool = True
    ) -> None:
        super().__init__()
        self.weight, self.vectors, self.detach, self.dropout = weight, vectors, detach, dropout

    def forward(self, t: Trajectory) -> Tensor:
        with _recurrence(t, detach=self.detach, dropout=self.dropout) as (c, vjp):
            size = _token_mask(t, c).flatten(1).sum(1).clamp(min=1) * c[0, 0].numel()
            squares = [_square(vjp(random_vector(t, c, number))) / size for number in range(self.vectors)]
            return torch.stack(squares).mean()


Product = Callable[[Tensor], Tensor]


@contextmanager
def _recurrence(t: Trajectory, *, detach: bool, dropout: bool) -> Iterator[tuple[Tensor, Product]]:
    """Yield the state at which the recurrence is differentiated, and the product ``v -> v^T J`` with gradient."""
    with torch.enable_grad(), _training(t.model, bool(t.model.training and dropout)):
        c = t.carried(t.reached)
        c = c.detach().requires_grad_() if detach or not c.requires_grad else c
        after = t.step(c)

        def vjp(v: Tensor) -> Tensor:
            (grad,) = torch.autograd.grad(after, c, v.to(after.dtype), create_graph=True)
            return grad

        yield c, vjp


def _build_jvp(vjp: Product, c: Tensor, mask: Tensor) -> Product:
    """Return the product ``v -> J v`` without gradient: the derivative of ``u -> u^T J``, which is linear."""
    u = torch.zeros_like(c).requires_grad_()
    of_u = vjp(u)

    def jvp(v: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(of_u, u, v.to(of_u.dtype), retain_graph=True)
        return grad.detach() * mask

    return jvp


@contextmanager
def _training(model: object, mode: bool) -> Iterator[None]:
    """Set the model to training or evaluation mode, and each part back to its own mode at the end."""
    before = [(part, part.training) for part in model.modules()] if isinstance(model, nn.Module) else []
    try:
        for part, was in before:
            part.training = was and mode
        yield
    finally:
        for part, was in before:
            part.training = was


def random_vector(t: Trajectory, c: Tensor, number: int) -> Tensor:
    """Draw standard normal numbers in the shape of the state, ``[B, T, *S, D]``, 0 at padding.

    A function of seed, optimizer step, sample, position and ``number`` alone.
    """
    return t.noise.fold(_STREAM).fold(number).normal(*c.shape[2:]).to(c.dtype) * _token_mask(t, c)


def _token_mask(t: Trajectory, c: Tensor) -> Tensor:
    """Return 1 at tokens and 0 at padding, ``[B, T, 1, ...]``, to multiply the state."""
    return (t.batch.positions < PAD).to(c.dtype).view(*c.shape[:2], *(1,) * (c.dim() - 2))


def normalize(v: Tensor, scope: Scope) -> Tensor:
    """Scale to unit length over the dimensions of ``scope``; zeros stay zeros."""
    if scope == "batch":
        return v / v.norm().clamp(min=_TINY)
    dims = tuple(range(1 if scope == "sample" else 2, v.dim()))
    return v / torch.linalg.vector_norm(v, dim=dims, keepdim=True).clamp(min=_TINY)


def squared_length(w: Tensor, t: Trajectory, scope: Scope) -> Tensor:
    """Return the squared length of the images of unit vectors, as a mean over the unit of ``scope``."""
    if scope == "batch":
        return widen(w).square().sum()
    if scope == "sample":
        return _square(w).mean()
    return _square(w).sum() / _token_mask(t, w).sum().clamp(min=1)


def _square(w: Tensor) -> Tensor:
    """Return the squared length of each sequence's vector, ``[B]``."""
    return widen(w).square().flatten(1).sum(1)
