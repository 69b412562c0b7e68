"""The block: against its formula, and in every use of a block."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from loopformer_models import LENGTH, LOOPS, VOCABULARY, build, tokens, trained
from loopkit_loopformer import LoopFormerBlock
from loopkit_loopformer.block import TimeEmbedding
from torch import Tensor
from torch.func import jvp

from loopkit.loop import Batch, FullCache, Loops
from loopkit.model import LoopedModel, load_weights, save_weights


@pytest.fixture
def batch() -> Batch:
    return tokens()


def logits(model: LoopedModel, batch: Batch, loops: int = LOOPS, **options: object) -> Tensor:
    t = model.run(batch, Loops.fixed(loops), **options)  # type: ignore[arg-type]
    return torch.stack([t.logits(k) for k in range(1, loops + 1)])


@torch.no_grad()
def test_block_starts_as_the_identity(batch: Batch) -> None:
    t = build().run(batch, Loops.fixed(LOOPS))
    assert torch.equal(t.state(LOOPS), t.state(0))


@torch.no_grad()
def test_time_embedding_equals_its_formula() -> None:
    embedding, t = TimeEmbedding(6, 4).double(), 0.3
    waves = [math.cos(1000 * t), math.cos(1000 * t / 100), math.sin(1000 * t), math.sin(1000 * t / 100)]
    hidden = F.silu(embedding.first.weight @ torch.tensor(waves, dtype=torch.float64) + embedding.first.bias)
    expected = embedding.second.weight @ hidden + embedding.second.bias
    torch.testing.assert_close(embedding(torch.tensor(t, dtype=torch.float64)), expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_block_equals_its_formula(batch: Batch) -> None:
    model = trained(build()).double()
    block = model.core.blocks[1]
    t = model.run(batch, Loops(2, 2, times=(0.0, 0.75, 1.0)))
    x, step = t.state(1), t.context(2, t.state(1))
    clocks = block.condition.time(torch.tensor(0.75).double()) + block.condition.step(torch.tensor(0.25).double())
    a, g, b, h = block.modulation.factors(F.silu(clocks)).split(32)
    y = x + g * block.attention(F.rms_norm(x, (32,), eps=1e-6) * (1 + a), step)
    expected = y + h * block.mlp(F.rms_norm(y, (32,), eps=1e-6) * (1 + b), step)
    torch.testing.assert_close(block(x, step), expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_result_depends_on_time_and_step_size(batch: Batch) -> None:
    model = trained(build())
    assert not model.depth_free
    even = model.run(batch, Loops.fixed(2)).state(2)
    early = model.run(batch, Loops(2, 2, times=(0.0, 0.25, 1.0))).state(2)
    assert not torch.allclose(even, early, atol=1e-3)
    assert torch.equal(even, model.run(batch, Loops(2, 2, times=(0.0, 0.5, 1.0))).state(2))
    assert not torch.allclose(even, model.run(batch, Loops.fixed(4)).state(2), atol=1e-3)
    block, t = model.core.blocks[0], model.run(batch, Loops.fixed(4))
    same_start = [replace(t.context(1, t.e), loops=Loops.fixed(total)) for total in (2, 4)]  # t 0, dt 1/2 and 1/4
    assert not torch.allclose(block(t.e, same_start[0]), block(t.e, same_start[1]), atol=1e-3)
    same_size = [t.context(k, t.e) for k in (1, 3)]  # dt 1/4, t 0 and 1/2
    assert not torch.allclose(block(t.e, same_size[0]), block(t.e, same_size[1]), atol=1e-3)


def test_recipe_ties_the_time_embeddings() -> None:
    names = [name for name, _ in build().named_parameters() if ".condition." in name]
    assert names
    assert all(name.startswith("core.blocks.0.") for name in names)


def test_gradient_reaches_every_parameter(batch: Batch) -> None:
    model = trained(build()).train()
    model.run(batch, Loops.fixed(LOOPS)).nll([LOOPS]).mean().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert idle == []


def test_checkpointing_does_not_change_gradients(batch: Batch) -> None:
    model, gradients = trained(build()).train(), []
    for model.checkpointing in (False, True):
        model.zero_grad()
        model.run(batch, Loops.fixed(LOOPS)).nll([LOOPS]).mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


@torch.no_grad()
def test_cached_decoding_equals_full_pass(batch: Batch) -> None:
    model, cache = trained(build()), FullCache(len(batch))
    parts = []
    for first, last in ((0, 5), (5, 6), (6, LENGTH)):
        part = Batch(*(value[:, first:last] for value in (batch.tokens, batch.labels, batch.positions)), batch.sample)
        parts.append(logits(model, part, cache=cache))
    torch.testing.assert_close(torch.cat(parts, dim=2), logits(model, batch), rtol=1e-5, atol=1e-5)


def test_double_backward_equals_forward_mode(batch: Batch) -> None:
    model = trained(build()).double()
    t = model.run(batch, Loops.fixed(LOOPS))
    c = t.carried(2).detach().requires_grad_()
    v = torch.randn(c.shape, dtype=c.dtype, generator=torch.Generator().manual_seed(2))
    _, forward = jvp(lambda x: t.step(x, 3), (c.detach(),), (v,))
    u = torch.zeros_like(c, requires_grad=True)
    (pulled,) = torch.autograd.grad(t.step(c, 3), c, u, create_graph=True)
    (twice,) = torch.autograd.grad(pulled, u, v)
    torch.testing.assert_close(twice, forward, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_stream_stays_fp32_under_autocast(batch: Batch) -> None:
    plain = trained(build()).run(batch, Loops.fixed(LOOPS)).state(LOOPS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = trained(build()).run(batch, Loops.fixed(LOOPS)).state(LOOPS)
    assert state.dtype == torch.float32
    assert 0 < (state - plain).norm() / plain.norm() < 0.03


def test_compiled_block_does_not_recompile_per_time(batch: Batch) -> None:
    from torch._dynamo.testing import CompileCounter

    model, counter = trained(build()), CompileCounter()
    depths = (2, 3, 4, 7)
    expected = [logits(model, batch, depth) for depth in depths]
    torch._dynamo.reset()
    model.core.blocks[0].compile(backend=counter)
    torch.testing.assert_close([logits(model, batch, depth) for depth in depths], expected)
    assert counter.frame_count <= 2
    torch._dynamo.reset()


def test_block_saves_loads_and_runs_on_meta(batch: Batch, tmp_path: object) -> None:
    model = trained(build())
    path = tmp_path / "weights.safetensors"  # type: ignore[operator]
    save_weights(model, path)
    empty = build(seed=None)
    load_weights(empty, path)
    assert torch.equal(logits(empty, batch), logits(model, batch))
    assert logits(build(device="meta"), batch.to("meta")).shape == (LOOPS, 3, LENGTH, VOCABULARY)


@torch.no_grad()
def test_prelude_and_coda_are_not_conditioned(batch: Batch) -> None:
    model = build("model.prelude=1", "model.coda=1")
    owners = {name.split(".")[0] for name, _ in model.named_parameters() if "modulation" in name or "condition" in name}
    assert owners == {"core"}
    t = model.run(batch, Loops.fixed(LOOPS))
    block, x, step = model.prelude.blocks[0], model.embedding.tokens(batch.tokens), t.context(0, t.e)
    y = x + block.attention(F.rms_norm(x, (32,), eps=1e-6), step)
    torch.testing.assert_close(t.e, y + block.mlp(F.rms_norm(y, (32,), eps=1e-6), step))


def test_odd_clock_is_rejected() -> None:
    with pytest.raises(ValueError, match="clock must be even, not 5"):
        build("model.block.clock=5")
    assert LoopFormerBlock.registration.traits["uses_total"]
