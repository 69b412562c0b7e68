"""Predictions by loop beside the last one's, and errors of rounding, against plain computations."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from loopkit.components.probe.logit_lens import LogitLens
from loopkit.components.probe.rounding import Rounding, round_rows
from loopkit.loop import Loops
from loopkit.model import LoopedModel
from tests.components.test_probe import Toy, batch_of, turn
from tests.model.tiny import batch, tiny

DEPTHS = [1, 2, 4]


def measure(probe: Any, model: Any, *batches: Any) -> dict[str, Any]:
    with torch.no_grad():
        probe.run(model, batches, DEPTHS)
    return probe.result().by_depth


@pytest.mark.parametrize("depth_free", [True, False])
def test_lens_equals_plain_distributions(depth_free: bool) -> None:
    model: Any = Toy(turn(0.4, 0.9))
    model.depth_free = depth_free
    data = batch_of(rows=3, unscored=1)
    figures = measure(LogitLens(), model, data)
    last = torch.distributions.Categorical(logits=model.run(data, Loops.fixed(4)).logits(4)[data.scored])
    for depth in DEPTHS:
        p = torch.distributions.Categorical(logits=model.run(data, Loops.fixed(depth)).logits(depth)[data.scored])
        kl = torch.distributions.kl_divergence(last, p).mean().item()
        assert figures["lens_kl"][depth] == pytest.approx(kl, abs=1e-12)
        assert figures["lens_entropy"][depth] == pytest.approx(p.entropy().mean().item(), rel=1e-12)
        agreement = (p.logits.argmax(-1) == last.logits.argmax(-1)).double().mean().item()
        assert figures["lens_agreement"][depth] == pytest.approx(agreement)
    assert figures["lens_kl"][4] == 0.0
    assert figures["lens_agreement"][4] == 1.0
    assert 0 < figures["lens_agreement"][1] < 1


def test_lens_reads_only_the_first_sequences() -> None:
    model: Any = Toy(turn(0.4))
    data = batch_of(rows=4)
    assert measure(LogitLens(sequences=3), model, data.rows(slice(0, 2)), data.rows(slice(2, 4))) == measure(
        LogitLens(), model, data.rows(slice(0, 3))
    )


def test_rounding_error_of_a_rotation_grows_with_depth() -> None:
    """Rounded after each loop, errors of an isometry add up: never more than one per loop."""
    model: Any = Toy(turn(0.3))
    errors = measure(Rounding(of="state", bits=8), _Module(model), batch_of(rows=4))["rounding_error"]
    assert errors[1] < errors[2] < errors[4] < 4 * 3**0.5 / 2 / 127


class _Module(torch.nn.Module):
    """A toy as a module without parameters."""

    def __init__(self, toy: Any) -> None:
        super().__init__()
        self.toy = toy

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "toy" else getattr(self.toy, name)


def rounded_copy(model: LoopedModel, bits: int) -> LoopedModel:
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        if parameter.dim() >= 2:
            parameter.data = round_rows(parameter.data, bits)
    return copied


@pytest.mark.parametrize("bits", [4, 8])
def test_rounded_weights_equal_a_rounded_model(bits: int) -> None:
    model, data = tiny(dtype=torch.float64).eval(), batch(rows=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    figures = measure(Rounding(bits=bits), model, data)
    exact, rounded = (m.run(data, Loops.fixed(4)) for m in (model, rounded_copy(model, bits)))
    for depth in DEPTHS:
        change = (rounded.state(depth) - exact.state(depth)).norm(dim=-1) / exact.state(depth).norm(dim=-1)
        assert figures["rounding_error"][depth] == pytest.approx(change.mean().item(), rel=1e-9)
        loss = [t.nll([depth], at=depth).sum().item() / int(data.scored.sum()) for t in (rounded, exact)]
        assert figures["rounding_loss"][depth] == pytest.approx(loss[0] - loss[1], abs=1e-9)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_weights_are_exact_again_after_an_error() -> None:
    model, data = tiny().eval(), batch(rows=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) > 4:  # in the pass with rounded weights
            raise RuntimeError("broken")

    model.core.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="broken"):
        measure(Rounding(), model, data)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_rounding_is_symmetric_and_keeps_zero_rows() -> None:
    x = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 0.4, 1.0], [254.0, 3.0, -127.0]])
    expected = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 51 / 127, 1.0], [254.0, 4.0, -128.0]])
    torch.testing.assert_close(round_rows(x, 8), expected)
    torch.testing.assert_close(round_rows(-x, 8), -expected)
