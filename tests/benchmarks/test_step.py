"""The comparison with a plain loop compares the same model, and its report is complete."""

from __future__ import annotations

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.matmul_ceiling import step_flops
from benchmarks.plain_loop import PlainModel, Shape
from benchmarks.step import compare
from benchmarks.table import HEADER, row
from loopkit.loop import Batch, Loops
from loopkit.model import build_model
from loopkit.objective import build_objective
from loopkit.recipe import load_recipe

TINY = Shape(batch=2, length=16, loops=2, vocabulary=50, width=32, layers=1, heads=2)


PLAIN_NAMES = {
    "embedding.tokens.weight": "tokens.weight",
    "position.table.weight": "positions.weight",
    "core.blocks.0.attention.qkv.weight": "core.0.qkv.weight",
    "core.blocks.0.attention.out.weight": "core.0.out.weight",
    "core.blocks.0.mlp.out.weight": "core.0.down.weight",
    "core.blocks.0.around_attention.norm.weight": "core.0.norm1.weight",
    "core.blocks.0.around_mlp.norm.weight": "core.0.norm2.weight",
}


def test_plain_loop_equals_loopkit() -> None:
    """With the same parameters both have the same loss and the same gradients."""
    overrides = ["model.width=32", "model.core=1", "model.block.attention.heads=2", "data.length=16", "data.stride=16"]
    overrides += ["model.embedding.dropout=0", "model.block.dropout=0", "model.block.attention.dropout=0"]
    recipe = load_recipe("wikitext_44m_raw", overrides=overrides)
    model = build_model(recipe.model, vocabulary=50, max_length=16, max_loops=2, seed=0)
    plain, state = PlainModel(TINY), model.state_dict()
    gate, up = (f"core.blocks.0.mlp.{name}.weight" for name in ("gate", "up"))
    plain.load_state_dict(
        {plain_name: state[name] for name, plain_name in PLAIN_NAMES.items()}
        | {"core.0.gate_up.weight": torch.cat([state[gate], state[up]])}
    )
    tokens = torch.randint(50, (2, 17))
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    loss = build_objective(recipe.objective)(model.run(Batch.of(inputs, labels), Loops.fixed(2)), 0).loss
    plain_loss = plain(inputs, labels)
    torch.testing.assert_close(plain_loss, loss)
    loss.backward()
    plain_loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    plain_gradients = {name: parameter.grad for name, parameter in plain.named_parameters()}
    for name, plain_name in PLAIN_NAMES.items():
        torch.testing.assert_close(plain_gradients[plain_name], gradients[name], rtol=1e-4, atol=1e-6)
    expected = torch.cat([gradients[gate], gradients[up]])
    torch.testing.assert_close(plain_gradients["core.0.gate_up.weight"], expected, rtol=1e-4, atol=1e-6)


def test_flops_are_those_of_torch() -> None:
    """The list of products is complete: torch counts the same FLOPs, without attention."""
    model, tokens = PlainModel(TINY), torch.randint(TINY.vocabulary, (2, 17))
    with FlopCounterMode(display=False) as counter:
        model(tokens[:, :-1], tokens[:, 1:]).backward()
    counts = {str(key): value for key, value in counter.get_flop_counts()["Global"].items()}
    assert sum(value for key, value in counts.items() if key.startswith("aten.mm")) == step_flops(TINY)


@pytest.mark.ci
def test_comparison_reports_speed_and_memory() -> None:
    result = json.loads(json.dumps(compare(TINY, 2, device="cpu", options=["--profile"])))
    plain, loopkit = result["plain"], result["loopkit"]
    assert result["speed"] == pytest.approx(loopkit["tokens_per_s"] / plain["tokens_per_s"])
    assert result["memory"] == pytest.approx(loopkit["peak_bytes"] / plain["peak_bytes"])
    for contender in (plain, loopkit):
        assert contender["step_s"]["min"] <= contender["step_s"]["median"] <= contender["step_s"]["max"]
        assert 0 < contender["profile"]["aten::mm"] < sum(contender["profile"].values()) <= 1
    assert row(result).count("|") == HEADER[0].count("|")
