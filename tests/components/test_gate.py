"""Exit gates."""

from __future__ import annotations

import pytest
import torch

from loopkit.components.gate import LinearGate, NoGate
from tests.components.steps import random, step_for

S, Z = random(2, 3, 4), random(2, 3, 4, seed=1)


def test_none_says_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"set model\.gate, for instance to 'linear'"):
        NoGate()(S, lambda: Z, step_for(S))


def test_linear_reads_state_or_readout() -> None:
    for reads, x in (("state", S), ("readout", Z)):
        gate = LinearGate(4, reads=reads)
        readouts: list[int] = []
        got = gate(S, lambda readouts=readouts: readouts.append(1) or Z, step_for(S))
        torch.testing.assert_close(got, x @ gate.linear.weight[0] + gate.linear.bias)
        assert len(readouts) == (reads == "readout")
    with torch.autocast("cpu", torch.bfloat16):
        assert gate(S, lambda: Z, step_for(S)).dtype == torch.float32
