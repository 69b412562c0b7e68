"""Cross-entropy of a linear head that never holds all logits.

Dims: N tokens, D width, V vocabulary. A part holds about ``LOGITS`` logits. Where a gradient is wanted it is formed
in the forward pass, part by part, from the probabilities at hand: three matrix products, as many as the dense path, and
none of its N x V memory. The gradient of ``z`` is known row by row up to what each row will receive; that of the matrix
sums over rows, so it needs their weights beforehand. If the caller does not state them, the backward pass forms the
logits a second time. It never waits for the device to compare weights with the gradient that arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from loopkit.loop import widen

LOGITS = 2**26
"""Logits formed at once: 256 MB in fp32. Smaller parts were slower, because each repacks the matrix."""


def linear_nll(
    z: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, row_weight: Tensor | float | None = None
) -> Tensor:
    """Negative log-likelihood of labels under ``softmax(z W^T + b)``.

    Args:
        z: ``[..., D]``.
        weight: ``[V, D]``.
        bias: ``[V]`` or ``None``.
        labels: ``[...]`` int64, each in 0..V-1.
        row_weight: The gradient that each value will receive, up to one factor: ``[...]``, or a number if all receive
            the same. It saves a product of the size of the logits; ``None`` allows any gradient.

    Returns:
        ``[...]`` in nats; fp32, or fp64 if ``z`` is.

    Raises:
        RuntimeError: In the backward pass on the CPU, if the gradient is not a multiple of ``row_weight``. On other
            devices the gradient of the matrix is then NaN, because an error would have to wait for the device.
    """
    dtype = _operand_dtype(z)
    flat, flat_labels = z.flatten(0, -2), labels.flatten()
    with _without_autocast(z):
        if torch.is_grad_enabled() and (z.requires_grad or weight.requires_grad):
            weight_N = row_weight.detach().flatten() if isinstance(row_weight, Tensor) else row_weight
            values = _LinearNll.apply(flat, weight, bias, flat_labels, weight_N, dtype)
        else:
            matrix = _operand(weight, dtype)
            parts = _parts(flat, weight)
            values = torch.cat([_log_p(flat[part], matrix, bias, flat_labels[part], dtype)[1] for part in parts])
    return values.view(labels.shape)


def linear_logits(z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the logits ``z W^T + b``, whose log-softmax ``linear_nll`` reads: the same operands, products and sums.

    Args:
        z: ``[..., D]``.
        weight: ``[V, D]``.
        bias: ``[V]`` or ``None``.

    Returns:
        ``[..., V]`` fp32, or fp64 if ``z`` is. Under autocast ``z`` and ``W`` are rounded, as for any matrix product;
        the logits are not.
    """
    dtype = _operand_dtype(z)
    needs_grad = torch.is_grad_enabled() and (z.requires_grad or weight.requires_grad)
    with _without_autocast(z):
        # a product that keeps its sums wide has no derivative, so a gradient goes through widened operands
        matrix = widen(weight.to(dtype)) if needs_grad else _operand(weight, dtype)
        return _product(z, matrix, bias, dtype)


def _operand_dtype(z: Tensor) -> torch.dtype:
    """Return the precision of the operands of the product: that of autocast, which does not change fp64."""
    device = z.device.type
    if z.is_meta or z.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return z.dtype
    return torch.get_autocast_dtype(device)


def _without_autocast(z: Tensor) -> AbstractContextManager[Any]:
    """No autocast on the device of a tensor; on ``meta`` there is none."""
    return nullcontext() if z.is_meta else torch.autocast(z.device.type, enabled=False)


def _operand(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the matrix for ``_product``, rounded to ``dtype`` and widened if the device would round the sums too."""
    rounded = weight.to(dtype)
    return rounded if rounded.is_cuda else widen(rounded)


def _product(z: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """``z W^T + b`` with ``z`` rounded to ``dtype``; summed and left in at least fp32.

    Args:
        z: ``[..., D]``.
        matrix: Result of ``_operand``.
        bias: ``[V]`` or ``None``.
        dtype: Result of ``_operand_dtype``.
    """
    rounded = z.to(dtype)
    if matrix.dtype.itemsize >= torch.float32.itemsize:
        logits = F.linear(rounded.to(matrix.dtype), matrix)
    else:
        logits = torch.mm(rounded.flatten(0, -2), matrix.T, out_dtype=torch.float32).unflatten(0, z.shape[:-1])
    return logits if bias is None else logits + bias.to(logits.dtype)


def _parts(z_ND: Tensor, weight_VD: Tensor) -> Iterator[slice]:
    """Equal parts of the tokens, so that no part is a small rest."""
    tokens = z_ND.shape[0]
    count = max(1, -(-tokens * weight_VD.shape[0] // LOGITS))
    size = -(-tokens // count)
    return (slice(first, first + size) for first in range(0, max(tokens, 1), max(size, 1)))


def _log_p(z: Tensor, matrix: Tensor, bias: Tensor | None, labels: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all tokens and nll of the labels, in at least fp32."""
    log_p = torch.log_softmax(_product(z, matrix, bias, dtype), dim=-1)
    return log_p, -log_p.gather(1, labels[:, None]).squeeze(1)


def _residual(log_p: Tensor, labels: Tensor) -> Tensor:
    """Gradient of the nll in the logits, p - one-hot; overwrites ``log_p``."""
    # e^-60 is negligible in the sum, and subnormal numbers made exp five times slower
    p = log_p.clamp_(min=-60.0).exp_()
    p.scatter_add_(1, labels[:, None], -torch.ones_like(labels, dtype=p.dtype)[:, None])
    return p


class _LinearNll(torch.autograd.Function):
    """See the top of the file."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        row_weight: Tensor | float | None,
        dtype: torch.dtype,
    ) -> Tensor:
        matrix, narrow = _operand(weight, dtype), weight.to(dtype)
        needs_z, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        values, grad_z = [], torch.empty_like(z) if needs_z else None
        grad_weight = torch.zeros_like(weight) if needs_weight and row_weight is not None else None
        grad_bias = torch.zeros_like(bias) if needs_bias and row_weight is not None and bias is not None else None
        for part in _parts(z, weight):
            log_p, nll = _log_p(z[part], matrix, bias, labels[part], dtype)
            values.append(nll)
            p = _residual(log_p, labels[part])
            if grad_z is not None:
                grad_z[part] = p.to(dtype) @ narrow
            if isinstance(row_weight, Tensor):
                p.mul_(row_weight[part, None])
            if grad_weight is not None:
                grad_weight += p.to(dtype).T @ z[part].to(dtype)
            if grad_bias is not None:
                grad_bias += p.sum(dim=0)
        ctx.dtype = dtype
        ctx.number = None if isinstance(row_weight, Tensor) else row_weight
        weights = row_weight if isinstance(row_weight, Tensor) else None
        ctx.save_for_backward(z, weight, bias, labels, weights, grad_z, grad_weight, grad_bias)
        return torch.cat(values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, weight, bias, labels, weights, grad_z, grad_weight, grad_bias = ctx.saved_tensors
        row_weight = ctx.number if weights is None else weights
        needs_z, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        if row_weight is None and (needs_weight or needs_bias):
            grad_weight, grad_bias = _again(ctx.dtype, z, weight, bias, labels, grad)
        elif needs_weight or needs_bias:
            factor = _common_factor(grad, row_weight)
            grad_weight = None if grad_weight is None else grad_weight * factor.to(grad_weight.dtype)
            grad_bias = None if grad_bias is None else grad_bias * factor.to(grad_bias.dtype)
        return (
            (grad_z * grad[:, None].to(grad_z.dtype)) if needs_z else None,
            grad_weight if needs_weight else None,
            grad_bias if needs_bias else None,
            None,
            None,
            None,
        )


def _common_factor(grad: Tensor, row_weight: Tensor | float) -> Tensor:
    """Return the factor between the stated and the true gradient of the values, a scalar.

    Raises:
        RuntimeError: If there is none; NaN on a device that the host would have to wait for.
    """
    if grad.numel() == 0:
        return grad.new_ones(())
    row_weight = row_weight.to(grad.dtype) if isinstance(row_weight, Tensor) else torch.full_like(grad, row_weight)
    largest = row_weight.abs().argmax(keepdim=True)
    at_largest = row_weight.take(largest).squeeze()
    factor = torch.where(at_largest == 0, 0.0, grad.take(largest).squeeze() / at_largest)
    equal = torch.isclose(grad, row_weight * factor, rtol=8 * torch.finfo(grad.dtype).eps, atol=0.0).all()
    if grad.device.type == "cpu" and not equal and grad.isfinite().all():
        raise RuntimeError(
            "the gradient of the likelihoods is not a multiple of the weight that was stated for them; "
            "pass nll() or score() the weight that the loss gives each token, or none"
        )
    return torch.where(equal, factor, torch.nan)


def _again(
    dtype: torch.dtype, z: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Gradients of matrix and bias for any gradient of the values."""
    matrix = _operand(weight, dtype)
    grad_weight = torch.zeros_like(weight)
    grad_bias = None if bias is None else torch.zeros_like(bias)
    for part in _parts(z, weight):
        log_p, _ = _log_p(z[part], matrix, bias, labels[part], dtype)
        p = _residual(log_p, labels[part]).mul_(grad[part, None])
        grad_weight += p.to(dtype).T @ z[part].to(dtype)
        if grad_bias is not None:
            grad_bias += p.sum(dim=0)
    return grad_weight, grad_bias
