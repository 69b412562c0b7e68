"""Low-rank updates for each loop: against the formula, and in every use of a block."""

from __future__ import annotations

import copy

import pytest
import torch
from lora_models import LENGTH, LOOPS, VOCABULARY, build, tokens, trained
from torch import Tensor, nn
from torch.func import jvp

from loopkit.loop import Batch, FullCache, Loops
from loopkit.model import LoopedModel, load_weights, save_weights


@pytest.fixture
def batch() -> Batch:
    return tokens()


def logits(model: LoopedModel, batch: Batch, loops: int = LOOPS, **options: object) -> Tensor:
    t = model.run(batch, Loops.fixed(loops), **options)  # type: ignore[arg-type]
    return torch.stack([t.logits(k) for k in range(1, loops + 1)])


def differences(model: LoopedModel) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if ".differences." in name}


@torch.no_grad()
def test_block_starts_as_the_shared_block(batch: Batch) -> None:
    lora = build()
    plain = build("model.block={type: transformer, attention: {heads: 2}, mlp: {ratio: 2}}")
    shared = {name.replace(".base.", "."): value for name, value in lora.state_dict().items()}
    plain.load_state_dict({name: value for name, value in shared.items() if ".differences." not in name})
    assert torch.equal(logits(lora, batch), logits(plain, batch))
    assert not torch.equal(logits(trained(lora), batch), logits(plain, batch))


@torch.no_grad()
@pytest.mark.parametrize("targets", ["[q, v]", "[k]", "[q, k, v, o, gate, up, down]"])
def test_each_loop_uses_the_matrix_of_the_formula(batch: Batch, targets: str) -> None:
    """W_k = W + alpha / rank * B_k A_k, put into plain models loop by loop, gives the same states."""
    lora = trained(build(f"model.block.targets={targets}", "model.block.rank=2", "model.block.alpha=3").double())
    t = lora.run(batch, Loops.fixed(LOOPS))
    attention, mlp = lora.core.blocks[0].base.attention, lora.core.blocks[0].base.mlp
    matrices = {"q": (attention.qkv, 0), "k": (attention.qkv, 32), "v": (attention.qkv, 64), "o": (attention.out, 0)}
    matrices |= {"gate": (mlp.gate, 0), "up": (mlp.up, 0), "down": (mlp.out, 0)}
    for k in range(1, LOOPS + 1):
        merged = copy.deepcopy(lora)
        base = merged.core.blocks[0].base
        for role, (matrix, first) in matrices.items():
            if role in getattr(matrix, "differences", ()):
                part = matrix.differences[role]
                own = {id(attention.qkv): base.attention.qkv, id(attention.out): base.attention.out}
                own |= {id(mlp.gate): base.mlp.gate, id(mlp.up): base.mlp.up, id(mlp.out): base.mlp.out}
                product = torch.zeros_like(matrix.weight[first : first + part.b.shape[1]])
                for r in range(2):
                    product += torch.outer(part.b[k - 1, :, r], part.a[k - 1, r])
                own[id(matrix)].weight[first : first + len(product)] += 3 / 2 * product
        for name, parameter in differences(merged).items():
            if name.endswith(".b"):
                parameter.zero_()
        step = t.context(k, t.carried(k - 1))
        state = merged.core(merged.injection(t.carried(k - 1), t.e, step), step)
        torch.testing.assert_close(state, t.state(k), rtol=1e-12, atol=1e-12)


def test_updates_get_gradient_only_from_their_loop(batch: Batch) -> None:
    lora = trained(build()).train()
    lora.run(batch, Loops.fixed(2)).nll([2]).mean().backward()
    for name, parameter in differences(lora).items():
        assert parameter.grad is not None
        by_loop = parameter.grad.abs().sum(dim=(1, 2))
        assert (by_loop[:2] > 0).all(), name
        assert by_loop[2] == 0, name


def test_checkpointing_does_not_change_gradients(batch: Batch) -> None:
    lora, gradients = trained(build()).train(), []
    for lora.checkpointing in (False, True):
        lora.zero_grad()
        lora.run(batch, Loops.fixed(LOOPS)).nll([1, LOOPS]).mean().backward()
        gradients.append([parameter.grad.clone() for parameter in lora.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


@torch.no_grad()
def test_cached_decoding_equals_full_pass(batch: Batch) -> None:
    lora, cache = trained(build()), FullCache(len(batch))
    parts = []
    for first, last in ((0, 5), (5, 6), (6, LENGTH)):
        part = Batch(*(value[:, first:last] for value in (batch.tokens, batch.labels, batch.positions)), batch.sample)
        parts.append(logits(lora, part, cache=cache))
    torch.testing.assert_close(torch.cat(parts, dim=2), logits(lora, batch), rtol=1e-5, atol=1e-5)


def test_double_backward_equals_forward_mode(batch: Batch) -> None:
    """A product with the Jacobian of loop 3: by a double backward as by forward mode."""
    lora = trained(build()).double()
    t = lora.run(batch, Loops.fixed(LOOPS))
    c = t.carried(2).detach().requires_grad_()
    v = torch.randn(c.shape, dtype=c.dtype, generator=torch.Generator().manual_seed(2))
    _, forward = jvp(lambda x: t.step(x, 3), (c.detach(),), (v,))
    u = torch.zeros_like(c, requires_grad=True)
    (pulled,) = torch.autograd.grad(t.step(c, 3), c, u, create_graph=True)
    (twice,) = torch.autograd.grad(pulled, u, v)
    torch.testing.assert_close(twice, forward, rtol=1e-9, atol=1e-9)


def test_stream_stays_fp32_under_autocast(batch: Batch) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        t = trained(build()).run(batch, Loops.fixed(LOOPS))
    assert t.state(LOOPS).dtype == torch.float32
    plain = trained(build()).run(batch, Loops.fixed(LOOPS))
    distance = (t.state(LOOPS) - plain.state(LOOPS)).norm() / plain.state(LOOPS).norm()
    assert 0 < distance < 0.03


def test_compiled_block_serves_any_number_of_loops(batch: Batch) -> None:
    from torch._dynamo.testing import CompileCounter

    lora, counter = trained(build(max_loops=12)), CompileCounter()
    expected = logits(lora, batch, 12)
    torch._dynamo.reset()
    lora.core.blocks[0].compile(backend=counter)
    torch.testing.assert_close(logits(lora, batch, 12), expected)
    assert counter.frame_count <= 2  # once for the first loop, once for all others
    torch._dynamo.reset()


def test_block_saves_loads_and_runs_on_meta(batch: Batch, tmp_path: object) -> None:
    lora = trained(build())
    path = tmp_path / "weights.safetensors"  # type: ignore[operator]
    save_weights(lora, path)
    empty = build(seed=None)
    load_weights(empty, path)
    assert torch.equal(logits(empty, batch), logits(lora, batch))
    assert logits(build(device="meta"), batch.to("meta")).shape == (LOOPS, 3, LENGTH, VOCABULARY)


def test_prelude_and_coda_have_no_updates(batch: Batch) -> None:
    lora = build("model.prelude=1", "model.coda=1")
    assert {name.split(".")[0] for name in differences(lora)} == {"core"}
    assert logits(lora, batch).isfinite().all()


def test_more_loops_than_trained_are_rejected(batch: Batch) -> None:
    assert build().max_depth == LOOPS
    with pytest.raises(ValueError, match="parameters for 3 loops and cannot run 4"):
        logits(build(), batch, 4)
    block = build().core.blocks[0]
    t = build().run(batch, Loops.fixed(1))
    with pytest.raises(ValueError, match="loops 1 to 3; it cannot run loop 4"):
        block(t.e, t.context(4, t.e))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("targets=[q, w]", "no matrix with the role 'w'.*roles: q, k, v, o, gate, up, down"),
        ("targets=[Gate]", "no matrix with the role 'Gate'; did you mean 'gate'"),
        ("rank=64", "rank 64 exceeds 'q', which is 32 x 32; set rank to 32 or less"),
        ("base={type: lora, base: {attention: {heads: 2}}}", "not a PerLoopLinear"),
    ],
)
def test_invalid_options_are_rejected(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(f"model.block.{override}")


def test_missing_role_is_named() -> None:
    with pytest.raises(ValueError, match="no matrix with the role 'gate'"):
        build("model.block.base.mlp={type: gelu}", "model.block.targets=[up, gate]")


def test_only_updates_can_be_trained() -> None:
    from loopkit.model.parameter_groups import freeze

    names = freeze(build(), ["*.differences.*"])
    assert len(names) == 4
    assert all(".differences." in name for name in names)
