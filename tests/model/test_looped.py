"""The loop: truncated gradients, late starts, early stops, interventions, recomputation, compilation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.supervision import PerLoop
from loopkit.loop import Batch, Loops, Trajectory
from loopkit.model import LoopedModel
from loopkit.recipe import component
from loopkit.recipe.format import EmbeddingConfig, HeadConfig, StageConfig
from loopkit.registry import Spec
from tests.model.tiny import BLOCK, batch, section, tiny

HUGINN: dict[str, Any] = {
    "prelude": 1,
    "coda": StageConfig(layers=1, norm=component("norm", "rmsnorm")),
    "start": "normal",
    "injection": "concat",
    "carry": "norm",
}


def gradients(model: LoopedModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(
            actual[name], expected[name], msg=lambda text, name=name: f"{name}: {text}", **tolerance
        )


def test_the_equations() -> None:
    model = tiny(**HUGINN, embedding=EmbeddingConfig(scale="sqrt_width"))
    data = batch()
    t = model.run(data, Loops.fixed(3))
    x = model.embedding.tokens(data.tokens) * 4
    torch.testing.assert_close(t.e, model.prelude(x, t.context(0, x)))
    torch.testing.assert_close(t.state(0), t.context(0, x).noise.normal(16))
    c = t.state(0)
    for k in (1, 2, 3):
        s = model.core(model.injection(c, t.e, t.context(k, c)), t.context(k, c))
        torch.testing.assert_close(t.state(k), s)
        c = model.carry.norm(s)
        torch.testing.assert_close(t.carried(k), c)
    h = model.coda.blocks[0](model.coda.norm(s), t.context(4, s))
    torch.testing.assert_close(t.readout(3), model.readout.norm(h))
    torch.testing.assert_close(t.logits(3), t.readout(3) @ model.embedding.tokens.weight.T)


def test_ouro_feeds_the_readout_back() -> None:
    model, data = tiny(carry="readout", head=HeadConfig(tied=False)), batch()
    t = model.run(data, Loops.fixed(3))
    for k in (1, 2, 3):
        assert torch.equal(t.carried(k), t.readout(k))
        assert not torch.equal(t.carried(k), t.state(k))


def test_zero_loops_read_the_start() -> None:
    model, data = tiny(readout="raw"), batch()
    t = model.run(data, Loops.fixed(0))
    assert torch.equal(t.readout(0, at=0), t.e)
    assert torch.equal(model.run(data, Loops.fixed(2)).readout(0, at=0), t.readout(0))


@pytest.mark.parametrize("backprop", [1, 2, 4])
def test_truncated_gradient_equals_run_from_detached_state(backprop: int) -> None:
    model, data = tiny(**HUGINN), batch()
    t = model.run(data, Loops.fixed(4, backprop))
    got = gradients(model, t.nll([4]).mean())
    full_pass = model.run(data, Loops.fixed(4))
    torch.testing.assert_close(t.state(4), full_pass.state(4))
    if backprop == 4:
        assert_same(got, gradients(model, full_pass.nll([4]).mean()))
        return
    assert not t.state(4 - backprop).requires_grad
    start = full_pass.carried(4 - backprop).detach()
    restarted = model.run(data, Loops.fixed(backprop), start=start)
    assert_same(got, gradients(model, restarted.nll([backprop]).mean()))


OF_TOKENS = {"attention": {"heads": 2, "value_embeddings": "all", "value_gate": 4}, "mlp": {"ratio": 2}}


@pytest.mark.parametrize("block", [BLOCK, {"type": "transformer"} | OF_TOKENS], ids=["plain", "value_embeddings"])
@pytest.mark.parametrize("backprop", [2, 4])
def test_unequal_depths_equal_separate_runs(backprop: int, block: dict[str, Any]) -> None:
    model, data = tiny(dtype=torch.float64, **(HUGINN | {"block": block})), batch(rows=4)
    depths = torch.tensor([4, 1, 2, 3])
    t = model.run(data, Loops(4, backprop, depths))
    assert t.depth.tolist() == [4, 1, 2, 3]
    together = gradients(model, t.nll([4]).mean())
    alone = []
    for row, depth in enumerate(depths.tolist()):
        one = model.run(data.rows(slice(row, row + 1)), Loops.fixed(depth, min(depth, backprop)))
        torch.testing.assert_close(t.state(4)[row], one.state(depth)[0])
        alone.append(gradients(model, one.nll([depth]).mean() / 4))
    assert_same(together, {name: sum(part.get(name, 0) for part in alone) for name in together})


def test_core_is_called_without_started_sequences() -> None:
    model, data = tiny(**HUGINN), batch()
    calls: list[int] = []
    model.core.register_forward_hook(lambda *_: calls.append(1))
    t = model.run(data, Loops(5, 5, torch.tensor([2, 3, 3])))
    assert len(calls) == 5
    got = gradients(model, t.nll([5]).sum())
    direct = model.run(data, Loops(3, 3, torch.tensor([2, 3, 3])))
    torch.testing.assert_close(t.state(5), direct.state(3))
    assert_same(got, gradients(model, direct.nll([3]).sum()))


@pytest.mark.parametrize(
    ("counts", "message"), [([1, 2], "2 numbers for 3 sequences"), ([0, 1, 2], r"lie in 1\.\.4"), ([5, 1, 2], "lie in")]
)
def test_invalid_per_sequence_depths_are_rejected(counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny().run(batch(), Loops(4, 4, torch.tensor(counts)))


@torch.no_grad()
def test_stopped_sequence_is_not_computed() -> None:
    model, data = tiny(**HUGINN), batch(rows=3)
    exits = torch.tensor([2, 4, 3])
    sizes: list[int] = []
    model.core.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    t = model.run(data, Loops.fixed(5), after_loop=lambda _, k: exits <= k)
    assert sizes == [3, 3, 2, 1]
    assert t.reached == 4
    assert t.depth.tolist() == [2, 4, 3]
    full_pass = model.run(data, Loops.fixed(5))
    for row, k in enumerate(exits.tolist()):
        for later in range(k, 5):
            torch.testing.assert_close(t.state(later)[row], full_pass.state(k)[row])


@torch.no_grad()
def test_after_loop_can_read_the_trajectory() -> None:
    model, data = tiny(), batch()

    def stop(t: Trajectory, k: int) -> Tensor:
        assert t.reached == k
        return t.logits(k, at=k).softmax(-1).amax(-1).mean(-1) > 2  # never

    t = model.run(data, Loops.fixed(3), after_loop=stop)
    assert torch.equal(t.state(3), model.run(data, Loops.fixed(3)).state(3))
    assert t.depth is None


def test_an_intervention_comes_before_readout_and_carry() -> None:
    model, data = tiny(carry="norm"), batch()
    seen: list[int] = []

    def halve(s: Tensor, k: int) -> Tensor:
        seen.append(k)
        return s / 2 if k == 1 else s

    t, plain = model.run(data, Loops.fixed(2), intervene=halve), model.run(data, Loops.fixed(2))
    assert seen == [1, 2]
    torch.testing.assert_close(t.state(1), plain.state(1) / 2)
    torch.testing.assert_close(t.carried(1), model.carry.norm(t.state(1)))


def test_keep_limits_stored_states() -> None:
    t = tiny().run(batch(), Loops.fixed(6), keep=frozenset({2}))
    assert sorted(t._states) == [2, 6]
    assert sorted(t._carried) == [2]


@pytest.mark.parametrize("per_sequence", [None, torch.tensor([1, 3, 2])])
def test_recomputation_preserves_gradients_and_records(per_sequence: Tensor | None) -> None:
    block = {
        "type": "transformer",
        "attention": {"heads": 2, "dropout": 0.3, "out_dropout": 0.1},
        "mlp": {"ratio": 2},
        "dropout": 0.2,
    }
    model, data = tiny(**HUGINN, block=block).train(), batch()
    handle = model.core.register_forward_pre_hook(
        lambda _, args: args[1].records.update(norm=args[0].norm(), calls=args[1].records.get("calls", 0) + 1)
    )
    results = []
    for model.checkpointing in (False, True):
        torch.manual_seed(0)
        t = model.run(data, Loops(3, 3, per_sequence))
        assert [sorted(record) for record in t.records] == [["calls", "norm"]] * 3
        loss = PerLoop()(t).loss + sum(record["norm"] for record in t.records)
        results.append(gradients(model, loss))
    handle.remove()
    assert_same(results[1], results[0])


def test_new_depth_does_not_recompile_blocks() -> None:
    model, data = tiny(init={"type": "normal", "std": 0.1}), batch()
    eager = model.run(data, Loops.fixed(3))
    expected = gradients(model, eager.nll([3]).mean())
    names = list(model.state_dict())
    torch._dynamo.reset()
    model.compile_blocks(backend="aot_eager")
    assert list(model.state_dict()) == names
    compiled = model.run(data, Loops.fixed(3))
    assert_same(gradients(model, compiled.nll([3]).mean()), expected, rtol=1e-4, atol=1e-6)
    frames = torch._dynamo.utils.counters["frames"]["ok"]
    for loops in (7, 1, 5):
        model.run(data, Loops.fixed(loops))
    assert torch._dynamo.utils.counters["frames"]["ok"] == frames
    # a step of the recurrence must stay differentiable twice, which compiled code is not
    c = compiled.carried(3).detach().requires_grad_()
    (back,) = torch.autograd.grad(compiled.step(c), c, torch.ones_like(c), create_graph=True)
    assert back.requires_grad


@pytest.mark.parametrize("placement", ["pre", "post", "pre_sandwich", "post_sandwich", "deepnorm"])
def test_the_stream_stays_fp32_under_autocast(placement: str) -> None:
    block = {"type": "transformer", "attention": {"heads": 2, "qk_norm": "rmsnorm"}, "placement": placement}
    model, data = tiny(**(HUGINN | {"injection": "gate", "block": block})), batch()
    seen: list[torch.dtype] = []
    model.core.blocks[0].mlp.up.register_forward_hook(lambda _, args, output: seen.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        t = model.run(data, Loops.fixed(2))
        loss = t.nll([1, 2]).mean()
    assert set(seen) == {torch.bfloat16}
    for part in (t.e, *(t.state(k) for k in range(3)), t.carried(1), t.logits(2), loss):
        assert part.dtype == torch.float32
    loss.backward()
    exact = model.run(data, Loops.fixed(2)).nll([1, 2]).mean()
    torch.testing.assert_close(loss, exact, rtol=0.05, atol=0.05)


@torch.no_grad()
def test_result_is_invariant_to_batch_size() -> None:
    model, data = tiny(**HUGINN), batch(rows=8)
    full_pass = model.run(data, Loops.fixed(3)).nll([1, 2, 3])
    parts = torch.cat([model.run(part, Loops.fixed(3)).nll([1, 2, 3]) for part in data.split(1)], dim=1)
    torch.testing.assert_close(parts, full_pass, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_any_state_can_be_read_in_any_precision() -> None:
    model, data = tiny(**HUGINN), batch()
    t = model.run(data, Loops.fixed(2))
    assert torch.equal(t.read(t.state(2), 2, 2), t.readout(2))
    z = t.read(t.state(2), 2, 2, dtype=torch.float64)
    assert z.dtype == torch.float64
    torch.testing.assert_close(z.float(), t.readout(2), rtol=1e-5, atol=1e-5)
    assert model.head(z).dtype == torch.float64
    assert model.readout.norm.weight.dtype == torch.float32


def test_parameters_per_loop_bound_the_depth() -> None:
    model = tiny(readout={"type": "alpha", "per_loop": True}, max_loops=3)
    assert model.max_depth == 3
    assert tiny().max_depth is None
    with pytest.raises(ValueError, match="parameters for 3 loops and cannot run 4"):
        model.run(batch(), Loops.fixed(4))


def test_build_error_names_the_part() -> None:
    unchecked = Spec("block", "transformer", {"attention": Spec("attention", "causal", {"heads": 3})})
    wrong = replace(section(), block=unchecked)
    with pytest.raises(ValueError, match="3 heads do not divide a width of 16") as caught:
        LoopedModel(wrong, vocabulary=5, max_length=4, max_loops=2)
    assert "while building model.core: core 'stack'" in caught.value.__notes__
    assert "while building model.block: block 'transformer'" in caught.value.__notes__


def test_positions_past_the_table_are_refused() -> None:
    model = tiny(position="learned")
    long = Batch.of(torch.zeros(1, 13, dtype=torch.int64))
    with pytest.raises(ValueError, match="position 12 is past the 12 learned positions"):
        model.run(long, Loops.fixed(1))
