"""Causal attention against a loop over tokens, and its two kernels against each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.attention import CausalAttention, attend
from loopkit.components.norm import RMSNorm
from loopkit.components.position import NoPosition, Rope
from loopkit.loop import PAD
from loopkit.testing import NotChecked, cases
from tests.components.steps import random, step_for


def attention(width: int = 8, **options: Any) -> CausalAttention:
    torch.manual_seed(0)
    wiring = {"position": options.pop("position", NoPosition()), "layer": options.pop("layer", 0)}
    return CausalAttention(width, **wiring, **({"heads": 2} | options)).eval()


def by_hand(module: CausalAttention, x: Tensor, extra: Tensor | None = None) -> Tensor:
    """One query at a time; ``extra``, ``[B, T, G, R]``, is added to the values."""
    size, group = module.head_size, module.heads // module.kv_heads
    rows = module.qkv(x)
    out = torch.zeros(*x.shape[:2], module.heads * size, dtype=x.dtype)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            for head in range(module.heads):
                q = rows[b, t, head * size : (head + 1) * size]
                first = (module.heads + head // group) * size
                k = rows[b, : t + 1, first : first + size]
                v = rows[b, : t + 1, first + module.kv_heads * size : first + (module.kv_heads + 1) * size]
                if extra is not None:
                    v = v + extra[b, : t + 1, head // group]
                if module.norm_q is not None and module.norm_k is not None:
                    q, k = module.norm_q(q), module.norm_k(k)
                out[b, t, head * size : (head + 1) * size] = (k @ q / math.sqrt(size)).softmax(0) @ v
    return module.out(out)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 4, "kv_heads": 2},
        {"heads": 4, "kv_heads": 1, "head_size": 6},
        {"qkv_bias": True, "out_bias": True},
    ],
)
def test_output_is_softmax_over_earlier_tokens(options: dict[str, Any]) -> None:
    module, x = attention(**options), random(2, 5, 8)
    torch.testing.assert_close(module(x, step_for(x)), by_hand(module, x))


@pytest.mark.parametrize("options", [{}, {"heads": 4, "kv_heads": 2}])
def test_qk_bias_equals_qkv_bias_without_values(options: dict[str, Any]) -> None:
    module, twin, x = attention(qk_bias=True, **options), attention(qkv_bias=True, **options), random(2, 5, 8)
    assert module.qk_bias.tolist() == [0.0] * len(module.qk_bias)
    with torch.no_grad():
        module.qk_bias.copy_(random(len(module.qk_bias), seed=3))
        twin.qkv.bias.zero_()
        twin.qkv.bias[: len(module.qk_bias)] = module.qk_bias
        twin.qkv.weight.copy_(module.qkv.weight)
        twin.out.weight.copy_(module.out.weight)
    torch.testing.assert_close(module(x, step_for(x)), by_hand(twin, x))
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x, step_for(x)).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="set one of qkv_bias and qk_bias"):
        attention(qkv_bias=True, qk_bias=True)


def test_qk_norm_precedes_rotation() -> None:
    def norm(width: int) -> RMSNorm:
        return RMSNorm(width)

    module, x = attention(qk_norm=norm), random(2, 5, 8)
    torch.testing.assert_close(module(x, step_for(x)), by_hand(module, x))
    assert module.norm_q.weight.shape == (4,)
    turned = attention(qk_norm=norm, position=Rope())
    assert not torch.allclose(turned(x, step_for(x)), module(x, step_for(x)))


def test_options_determine_parameters() -> None:
    module = attention(heads=4, kv_heads=2)
    assert module.qkv.weight.shape == (2 * (4 + 2 + 2), 8)
    assert module.qkv.bias is None
    assert module.out.bias is None
    assert module.cached_numbers == 2 * 2 * 2
    assert "norm_q.weight" not in module.state_dict()
    assert attention(head_size=3).out.weight.shape == (8, 6)


def test_position_is_not_registered_in_attention() -> None:
    position = torch.nn.Embedding(3, 8)
    module = attention(position=position)
    assert list(module.state_dict()) == ["qkv.weight", "out.weight"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"heads": 3}, "3 heads do not divide a width of 8"), ({"heads": 4, "kv_heads": 3}, "3 kv_heads do not divide 4")],
)
def test_heads_must_divide_width(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention(**options)


def test_padding_is_masked_at_any_index() -> None:
    module, x = attention(position=Rope()), random(2, 5, 8)
    places = torch.tensor([[PAD, PAD, 0, 1, 2], [0, 1, 2, 3, 4]])
    got = module(x, step_for(x, places, in_order=False))
    alone = module(x[:1, 2:], step_for(x[:1, 2:]))
    torch.testing.assert_close(got[:1, 2:], alone)
    torch.testing.assert_close(got[1:], module(x[1:], step_for(x[1:])))
    assert got.isfinite().all()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_explicit_attention_equals_torch_kernel(masked: bool, dtype: torch.dtype) -> None:
    q, k, v = (random(2, 2, 4, 3, seed=seed, dtype=dtype).requires_grad_() for seed in range(3))
    mask = (torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(5)) > 0.3) | torch.eye(4, dtype=torch.bool)
    chosen = mask if masked else None
    torchs = attend(q, k, v, chosen)
    ours = attend(q, k, v, chosen, lambda weights: weights)
    tolerance = {"rtol": 0.03, "atol": 0.03} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(ours, torchs, **tolerance)
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), (q, k, v)),
        torch.autograd.grad(torchs.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, **tolerance)


def test_weight_dropout_preserves_the_mean() -> None:
    module, x = attention(dropout=0.5), random(1, 4, 8)
    calm = module(x, step_for(x))
    assert torch.equal(module(x, step_for(x)), calm)
    module.train()
    many = x.expand(2000, 4, 8)  # a sample each
    draws = module(many, step_for(many))
    assert (draws[0] - draws[1]).abs().max() > 0.01
    torch.testing.assert_close(draws.mean(0, keepdim=True), calm, rtol=0.1, atol=0.05)


def test_output_dropout_zeroes_and_scales() -> None:
    module, x = attention(out_dropout=0.5), random(1, 200, 8)
    calm = module(x, step_for(x))
    noisy = module.train()(x, step_for(x))
    dropped = noisy == 0
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(noisy[~dropped], 2 * calm[~dropped])


def test_roles_select_the_right_rows() -> None:
    module, x = attention(heads=4, kv_heads=2), random(2, 5, 8)
    roles = module.roles()
    assert list(roles) == ["q", "k", "v", "o"]
    before = module(x, step_for(x))
    with torch.no_grad():
        matrix, rows = roles["v"]
        matrix.weight[rows] *= 3  # the output is linear in the values and in the output matrix, and in nothing else
        torch.testing.assert_close(module(x, step_for(x)), 3 * before)
        matrix, rows = roles["o"]
        matrix.weight[rows] *= 2
        torch.testing.assert_close(module(x, step_for(x)), 6 * before)
        for role in ("q", "k"):  # keys of zero, and queries of zero, look at everything alike
            matrix, rows = roles[role]
            before = matrix.weight[rows].clone()
            matrix.weight[rows] = 0
            values = module.qkv(x)[..., -4:].unflatten(-1, (2, 2)).repeat_interleave(2, dim=-2).flatten(-2)
            mean = values.cumsum(1) / torch.arange(1, 6)[:, None]
            torch.testing.assert_close(module(x, step_for(x)), module.out(mean))
            matrix.weight[rows] = before


TOKENS = torch.tensor([[3, 1, 1, 6, 0], [2, 2, 5, 4, 3]])


@pytest.mark.parametrize("options", [{}, {"heads": 4, "kv_heads": 2}, {"heads": 4, "kv_heads": 1, "head_size": 6}])
@pytest.mark.parametrize("channels", [None, 3])
def test_value_embedding_adds_gated_token_vector(options: dict[str, Any], channels: int | None) -> None:
    module = attention(value_embeddings="all", vocabulary=7, value_gate=channels, **options)
    assert module.value_table is not None
    x, extra = random(2, 5, 8), torch.zeros(2, 5, module.kv_heads, module.head_size)
    for b, t in ((b, t) for b in range(2) for t in range(5)):
        vector = module.value_table.weight[TOKENS[b, t]].view(module.kv_heads, module.head_size)
        for head in range(module.kv_heads):
            factor = 1.0
            if module.value_gate is not None:
                factor = 2 / (1 + math.exp(-(module.value_gate.weight[head] @ x[b, t, :3]).item()))
            extra[b, t, head] = factor * vector[head]
    torch.testing.assert_close(module(x, step_for(x, tokens=TOKENS)), by_hand(module, x, extra))
    assert not torch.allclose(module(x, step_for(x, tokens=TOKENS)), by_hand(module, x), atol=1e-2)


@pytest.mark.parametrize(
    ("which", "layers"),
    [(None, []), ("all", [0, 1, 2, 3]), ("even", [0, 2]), ("odd", [1, 3]), ([3, 0], [0, 3]), ([], [])],
)
def test_only_listed_layers_have_value_tables(which: Any, layers: list[int]) -> None:
    for layer in range(4):
        module = attention(value_embeddings=which, vocabulary=7, value_gate=4, layer=layer)
        names = {name for name, _ in module.named_parameters()}
        assert names == {"qkv.weight", "out.weight"} | (
            {"value_table.weight", "value_gate.weight"} if layer in layers else set()
        )


def test_missing_vocabulary_or_tokens_is_an_error() -> None:
    with pytest.raises(ValueError, match="a block that passes the size of the vocabulary"):
        attention(value_embeddings="all")
    x = random(2, 5, 8)
    with pytest.raises(ValueError, match=r"value_embeddings require step\.tokens"):
        attention(value_embeddings="all", vocabulary=7)(x, step_for(x))


def test_value_embeddings_pass_the_kit() -> None:
    options = {"heads": 4, "kv_heads": 2, "value_embeddings": "all", "value_gate": 8, "value_std": 0.5}
    ran = []
    for case in cases("attention/causal", options=options):
        try:
            case()
            ran.append(case.check.name)
        except NotChecked:
            continue
    assert {"cache", "causal", "padding", "batch", "gradient", "double backward"} <= set(ran)
