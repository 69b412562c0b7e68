"""Readouts, by their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from loopkit.components.norm import RMSNorm
from loopkit.components.readout import AlphaReadout, FinalOnlyReadout, NormReadout, RawReadout
from loopkit.loop import update_buffers
from tests.components.steps import random

H = 5 * random(2, 3, 4)


def norm(width: int) -> RMSNorm:
    return RMSNorm(width)


def test_norm_raw_and_final_only() -> None:
    assert RawReadout()(H, 1, 3) is H
    torch.testing.assert_close(NormReadout(4, norm=norm)(H, 1, 3), RMSNorm(4)(H))
    final = FinalOnlyReadout(4, norm=norm)
    assert final(H, 2, 3) is H
    torch.testing.assert_close(final(H, 3, 3), RMSNorm(4)(H))
    torch.testing.assert_close(final(H, 2, 2), RMSNorm(4)(H))


@pytest.mark.parametrize("alpha", [0.0, 0.375, 1.0])
def test_alpha_lies_between_norm_and_raw(alpha: float) -> None:
    readout = AlphaReadout(3, alpha=alpha, s_ref="fixed", scale=2.0)
    s = H.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(readout(H, 1, 3), 2.0 ** (1 - alpha) * s**alpha * H / s)
    assert list(readout.parameters()) == []


def test_alpha_is_learned_between_its_bounds() -> None:
    readout = AlphaReadout(3, min=0.2, max=0.6, s_ref="learned")
    assert {name for name, _ in readout.named_parameters()} == {"scales.0.alpha_logit", "scales.0.log_s_ref"}
    half = AlphaReadout(3, alpha=0.4, s_ref="fixed")
    torch.testing.assert_close(readout(H, 1, 3), half(H, 1, 3))
    with torch.no_grad():
        readout.scales[0].alpha_logit.fill_(100.0)
    torch.testing.assert_close(readout(H, 1, 3), AlphaReadout(3, alpha=0.6, s_ref="fixed")(H, 1, 3))


def test_running_scale_moves_once_per_step() -> None:
    """It moves by the mean of each loop over the tokens that count, and by nothing else."""
    readout = AlphaReadout(3, s_ref="ema", decay=0.75).train()
    scale, loop = readout.scales[0], torch.ones(H.shape[:2], dtype=torch.int64)
    update_buffers(readout)
    assert (scale.log_s_ref, scale.count) == (0, 0)
    padding = loop.clone()
    padding[:, -1] = 0
    for h in (H, 3 * H):  # two micro-batches
        readout.observe(h, padding)
        readout.observe(2 * h, 3 * padding)
        readout(h, 1, 3)
    assert scale.log_s_ref == 0
    update_buffers(readout)
    mean = H[:, :-1].square().mean(-1).log().mean() / 2 + math.log(3) / 2
    torch.testing.assert_close(scale.log_s_ref, mean + 0.25 * math.log(2))
    assert scale.count == 2
    update_buffers(readout)
    assert scale.count == 2


def test_running_scales_of_loops_move_apart() -> None:
    readout = AlphaReadout(2, s_ref="ema", per_loop=True).train()
    loop = torch.full(H.shape[:2], 2, dtype=torch.int64)
    loop[0] = 1  # a sequence of fewer loops
    readout.observe(H, loop)
    update_buffers(readout)
    for scale, h in zip(readout.scales, (H[:1], H[1:]), strict=True):
        torch.testing.assert_close(scale.log_s_ref, h.square().mean(-1).log().mean() / 2)


def test_per_loop_parameters_bound_the_depth() -> None:
    readout = AlphaReadout(2, per_loop=True)
    assert readout.max_depth == 2
    assert len(readout.scales) == 2
    with torch.no_grad():
        readout.scales[1].alpha_logit.fill_(3.0)
    readout.eval()
    assert not torch.allclose(readout(H, 1, 2), readout(H, 2, 2))
    for k in (0, 3):
        with pytest.raises(ValueError, match=f"has loops 1 to 2; loop {k} was asked for"):
            readout(H, k, 3)
    assert AlphaReadout(2).max_depth is None


def test_alpha_is_finite_at_zero_and_keeps_fp64() -> None:
    h = torch.zeros(1, 1, 4, dtype=torch.float64, requires_grad=True)
    z = AlphaReadout(2, s_ref="fixed").double()(h, 1, 1)
    z.sum().backward()
    assert z.dtype == torch.float64
    assert h.grad.isfinite().all()
