"""A view of some sequences reads the values of the full pass, each once."""

from __future__ import annotations

import pytest
import torch

from loopkit.inference import TrajectoryView
from loopkit.loop import Loops
from tests.model.tiny import batch, tiny


@torch.no_grad()
def test_view_equals_the_full_pass() -> None:
    model = tiny(dtype=torch.float64, gate="linear", coda=1, readout="final_only")
    full_pass = model.run(batch(5, unscored=2), Loops.fixed(3))
    view = TrajectoryView(full_pass).narrow(torch.tensor([True, False, True, True, False]))
    view = view.narrow(torch.tensor([True, False, True]))
    assert len(view.batch) == 2
    rows = torch.tensor([0, 3])
    assert torch.equal(view.batch.tokens, full_pass.batch.tokens[rows])
    for k in (1, 2, 3):
        torch.testing.assert_close(view.state(k), full_pass.state(k)[rows])
        torch.testing.assert_close(view.gate(k), full_pass.gate(k, at=k)[rows])
        torch.testing.assert_close(view.nll([k]), full_pass.nll([k], at=k)[:, rows])
        torch.testing.assert_close(view.logits(k), full_pass.logits(k, at=k)[rows])
        torch.testing.assert_close(view.logits(k, at=3), full_pass.logits(k)[rows])
        torch.testing.assert_close(view.nll([k], at=3), full_pass.nll([k])[:, rows])
    torch.testing.assert_close(view.nll([1, 3]), full_pass.nll([1, 3], at=[1, 3])[:, rows])


@pytest.mark.parametrize("narrow_products", [False, True])
@torch.no_grad()
def test_loss_from_cached_logits_equals_loss_from_readout(narrow_products: bool) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow_products):
        full_pass = tiny().run(batch(3, unscored=4), Loops.fixed(2))
        view = TrajectoryView(full_pass)
        from_readout = view.nll([2])
        view.logits(2)
        from_logits = view.nll([2])
    assert from_logits.dtype == from_readout.dtype == torch.float32
    torch.testing.assert_close(from_logits, from_readout)
    assert (from_logits[0, :, :4] == 0).all()


@torch.no_grad()
def test_narrower_view_inherits_values() -> None:
    model = tiny(gate={"type": "linear", "reads": "readout"}, coda=1)
    wide = TrajectoryView(model.run(batch(4), Loops.fixed(2)))
    calls = {"head": 0, "coda": 0}
    for name in calls:
        getattr(model, name).register_forward_pre_hook(
            lambda module, args, name=name: calls.__setitem__(name, calls[name] + 1)
        )
    wide.logits(2)
    wide.gate(2)
    assert calls == {"head": 1, "coda": 1}
    narrow = wide.narrow(torch.tensor([False, True, True, False]))
    narrow.logits(2)
    narrow.gate(2)
    narrow.nll([2])
    assert calls == {"head": 1, "coda": 1}


@torch.no_grad()
def test_logits_of_old_loops_are_dropped() -> None:
    view = TrajectoryView(tiny().run(batch(2), Loops.fixed(6)))
    for k in range(1, 7):
        view.logits(k)
    assert sorted(k for what, k, _ in view._values if what == "logits") == [5, 6]


def test_unrun_loop_cannot_be_read() -> None:
    view = TrajectoryView(tiny().run(batch(2), Loops.fixed(2)))
    with pytest.raises(ValueError, match="did not run"):
        view.logits(3)
    with pytest.raises(ValueError, match="at must be at least 2"):
        view.logits(2, at=1)
