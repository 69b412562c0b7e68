"""One pass, readable at every loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from loopkit.components.readout import NormReadout
from loopkit.loop import Batch, Loops, Step
from tests.model.tiny import batch, tiny


def test_readouts_are_lazy_and_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    forward = NormReadout.forward
    monkeypatch.setattr(NormReadout, "forward", lambda self, h, k, at: calls.append((k, at)) or forward(self, h, k, at))
    t = tiny().run(batch(), Loops.fixed(4))
    assert calls == []
    t.nll([2, 4])
    t.logits(2)
    t.readout(4)
    assert calls == [(2, 4), (4, 4)]
    t.readout(2, at=2)
    assert calls[2:] == [(2, 2)]


def test_readout_is_recomputed_when_gradient_is_enabled() -> None:
    t = tiny().run(batch(), Loops.fixed(2))
    with torch.no_grad():
        assert not t.readout(2).requires_grad
    assert t.readout(2).requires_grad
    with torch.no_grad():
        assert t.readout(2).requires_grad  # the cached readout is returned


@pytest.mark.parametrize("unscored", [0, 5, 12])
def test_nll_is_the_cross_entropy_of_the_logits(unscored: int) -> None:
    data = batch(unscored=unscored)
    t = tiny().run(data, Loops.fixed(4))
    nll = t.nll([1, 3, 4])
    assert nll.shape == (3, 3, 12)
    for values, k in zip(nll, [1, 3, 4], strict=True):
        dense = F.cross_entropy(t.logits(k).flatten(0, 1), data.labels.flatten(), reduction="none")
        torch.testing.assert_close(values.flatten(), dense, rtol=1e-5, atol=1e-5)
        assert (values[~data.scored] == 0).all()


def test_one_pass_serves_every_depth() -> None:
    model, data = tiny(readout="final_only"), batch()
    t = model.run(data, Loops.fixed(4))
    deep = t.nll([1, 2, 3], at=[1, 2, 3])
    for values, k in zip(deep, [1, 2, 3], strict=True):
        assert torch.equal(values, model.run(data, Loops.fixed(k)).nll([k])[0])
    assert not torch.allclose(t.nll([2]), deep[1:2])


def test_carried_is_input_of_next_loop() -> None:
    model, data = tiny(carry="damping"), batch()
    t = model.run(data, Loops.fixed(3))
    assert torch.equal(t.carried(0), t.state(0))
    torch.testing.assert_close(t.carried(2), t.state(2) * model.carry.logit.sigmoid())
    longer = model.run(data, Loops.fixed(4))
    assert torch.equal(t.carried(3), longer.carried(3))


def test_step_is_one_more_loop() -> None:
    model, data = tiny(carry="norm", injection="concat"), batch()
    t = model.run(data, Loops.fixed(4))
    torch.testing.assert_close(t.step(t.carried(2)), t.carried(3))
    assert t.reached == 4
    assert len(t.records) == 4


def test_step_is_differentiable_twice_and_forward() -> None:
    t = tiny(dtype=torch.float64).run(batch(), Loops.fixed(2))
    c = t.carried(2).detach().requires_grad_()
    v = torch.randn(c.shape, dtype=c.dtype, generator=torch.Generator().manual_seed(0))
    (back,) = torch.autograd.grad(t.step(c), c, v, create_graph=True)
    back.square().sum().backward()
    gradient = t.model.core.blocks[0].attention.qkv.weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0
    _, forward = torch.func.jvp(t.step, (c.detach(),), (v,))
    step = 1e-6
    with torch.no_grad():
        slope = (t.step(c + step * v) - t.step(c - step * v)) / (2 * step)
    torch.testing.assert_close(forward, slope, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close((forward * v).sum(), (back * v).sum())


def test_rerun_keeps_batch_and_noise() -> None:
    model = tiny(start="normal")
    t = model.run(batch(), Loops.fixed(4), noise_key=(7, 1))
    short = t.rerun(Loops.fixed(2))
    assert torch.equal(short.state(2), t.state(2))
    assert not torch.equal(model.run(batch(), Loops.fixed(2)).state(2), t.state(2))


def test_gate_needs_a_gate() -> None:
    with pytest.raises(ValueError, match=r"no exit gate; set model\.gate"):
        tiny().run(batch(), Loops.fixed(2)).gate(1)
    t = tiny(gate={"type": "linear", "reads": "readout"}).run(batch(), Loops.fixed(2))
    gate = t.model.gate.linear
    torch.testing.assert_close(t.gate(1), gate(t.readout(1)).squeeze(-1))


def test_missing_loop_is_an_error() -> None:
    t = tiny().run(batch(), Loops.fixed(3), keep={2})
    assert t.state(2).shape == t.state(3).shape
    with pytest.raises(ValueError, match="loop 1 was not kept"):
        t.state(1)
    with pytest.raises(ValueError, match="loop 1 was not kept"):
        t.carried(1)
    with pytest.raises(ValueError, match="loop 4 did not run; this pass ran 3 of 3"):
        t.state(4)
    with pytest.raises(ValueError, match="at must be at least 3"):
        t.readout(3, at=2)
    with pytest.raises(ValueError, match="no loops to read"):
        t.nll([])


def test_active_masks_computed_sequences() -> None:
    model, data = tiny(), batch(rows=3)
    assert model.run(data, Loops.fixed(3)).active(2) is None
    late = model.run(data, Loops(3, 3, torch.tensor([3, 1, 2])))
    assert [late.active(k).tolist() for k in (1, 2, 3)] == [[True, False, False], [True, False, True], [True] * 3]
    with torch.no_grad():
        early = model.run(data, Loops.fixed(3), after_loop=lambda _, k: torch.tensor([2, 9, 1]) <= k)
    assert [early.active(k).tolist() for k in (1, 2, 3)] == [[True] * 3, [True, True, False], [False, True, False]]


def test_new_sequence_has_no_earlier_records() -> None:
    """This holds even if it was computed before, so that ranks make the same calls."""
    from loopkit.model import build_model
    from tests.model.tiny import section

    model = build_model(section(), vocabulary=11, max_length=8, max_loops=3, seed=0)
    seen = []
    core = model.core.forward

    def noting(s: Tensor, step: Step) -> Tensor:
        seen.append(dict(step.earlier))
        step.records["mark"] = torch.ones(len(s), s.shape[1])
        return core(s, step)

    model.core.forward = noting
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    model.run(Batch.of(tokens), Loops(3, 3, torch.tensor([2, 1])))
    assert seen[0] == {}
    assert seen[1]["mark"].sum() == 0
    assert seen[2]["mark"].sum(dim=1).tolist() == [4, 0]
