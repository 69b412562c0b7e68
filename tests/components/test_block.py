"""The transformer block: which parts it makes, and in what order it applies them."""

from __future__ import annotations

import torch

from loopkit.components.position import NoPosition
from loopkit.recipe import component
from tests.components.steps import random, step_for


def block(**options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    spec = component("block", {"type": "transformer", "attention": {"heads": 2}} | options, width=8)
    return spec.build(width=8, position=NoPosition(), layer=3, max_loops=2)


def test_attention_precedes_mlp_with_separate_norms() -> None:
    module, x = block(), random(2, 5, 8)
    middle = x + module.attention(module.around_attention.norm(x), step_for(x))
    torch.testing.assert_close(module(x, step_for(x)), middle + module.mlp(module.around_mlp.norm(middle), step_for(x)))
    assert module.around_attention.norm is not module.around_mlp.norm
    assert module.attention.layer == 3


def test_parts_are_chosen_by_name() -> None:
    module = block(mlp="gelu", norm={"type": "layernorm", "bias": False}, placement="post_sandwich")
    names = {name for name, _ in module.named_parameters()}
    assert {"around_mlp.norm_in.weight", "around_mlp.norm_out.weight", "mlp.up.weight"} <= names
    assert not {"mlp.gate.weight", "around_mlp.norm_in.bias"} & names


def test_dropout_applies_to_mlp_output() -> None:
    module, x = block(dropout=0.5).train(), random(1, 400, 8)
    middle = x + module.attention(module.around_attention.norm(x), step_for(x))
    added = module.mlp(module.around_mlp.norm(middle), step_for(x))
    factor = (module(x, step_for(x)) - middle) / added
    unchanged = (factor - 2).abs() < 0.1
    dropped = factor.abs() < 0.1
    assert (unchanged | dropped).float().mean() > 0.98
    assert 0.45 < dropped.float().mean() < 0.55
    module.eval()
    torch.testing.assert_close(module(x, step_for(x)), middle + added)
