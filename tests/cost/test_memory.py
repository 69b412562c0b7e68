"""The estimate counts what a pass really keeps, and grows in straight lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from loopkit.components.schedule import Schedule
from loopkit.cost.activation_memory import saved_bytes
from loopkit.cost.available_memory import memory_budget, total_memory
from loopkit.cost.memory import CPU_FRAGMENTATION, Activations, Memory, States, estimate
from loopkit.loop import Batch, Loops
from loopkit.model import build_model
from loopkit.model.cross_entropy import LOGITS
from loopkit.objective import build_objective
from loopkit.recipe import Recipe, load_recipe
from tests.training.conftest import Maker

WIDE = ("model.width=64", "data.length=64", "train.schedule={type: fixed, loops: 4}")
MATRICES = ((192, 64), (64, 64), (128, 64), (128, 64), (64, 128))  # of its one block


def estimated(recipe: Recipe, **options: Any) -> Memory:
    schedule: Schedule = recipe.train.schedule.build()
    length, most = recipe.data.length, schedule.bounds[1]
    model = build_model(recipe.model, vocabulary=50, max_length=length, max_loops=most, device="meta")
    return estimate(model, build_objective(recipe.objective).supervision, recipe, schedule, **options)


def really_kept(recipe: Recipe, loops: int, sequences: int, *, autocast: bool) -> int:
    """Bytes that a forward pass on this machine keeps, parameters excepted."""
    model = build_model(recipe.model, vocabulary=50, max_length=64, max_loops=4, seed=0).train()
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    saved: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = torch.zeros(sequences, 64, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), saved_tensors_hooks(keep, lambda tensor: tensor):
        model.run(Batch.of(tokens), Loops.fixed(loops)).readout(loops)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


@pytest.mark.parametrize("autocast", [False, True])
def test_what_is_counted_is_kept(recipe: Maker, autocast: bool) -> None:
    tiny = recipe(*WIDE)
    model = build_model(tiny.model, vocabulary=50, max_length=64, max_loops=4, device="meta")
    for loops, sequences in ((1, 1), (3, 4)):
        counted = saved_bytes(model, loops, sequences, 64, autocast=autocast, checkpointing=False)
        real = really_kept(tiny, loops, sequences, autocast=autocast)
        assert 0.75 * real < counted < 1.5 * real


def test_more_loops_and_more_sequences_take_more(recipe: Maker) -> None:
    four, two = estimated(recipe(*WIDE)), estimated(recipe(*WIDE, "train.backprop=2"))
    assert two.activations.per_sequence < 0.8 * four.activations.per_sequence
    assert four.activations.stored(8) - four.activations.stored(4) == 4 * four.activations.per_sequence
    assert four.total(1) < four.total(4) < four.total(8)


def test_peak_is_after_forward_or_in_backward() -> None:
    states = States(parameters=400, gradients=300, optimizer=800, buffers=50)
    passes = Activations(fixed=10, per_sequence=100, last_loop=25, recomputed=0, logits_per_sequence=9, logit=10)
    assert passes.peak(2, states, accumulating=False) == 1250 + max(210 + 180, 210 - 50 + 300)
    assert passes.peak(2, states, accumulating=True) == 1250 + max(210 + 180 + 300, 210 - 50 + 300)
    again = Activations(fixed=10, per_sequence=100, last_loop=0, recomputed=60, logits_per_sequence=9, logit=10)
    assert again.peak(2, states, accumulating=False) == 1250 + max(210 - 120 + 180, 210 + 300)
    wide = Activations(fixed=10, per_sequence=100, last_loop=0, recomputed=60, logits_per_sequence=9, block=7)
    assert wide.peak(2, states, accumulating=False) == 1250 + 210 + 2 * 7 + 300
    assert Memory(states, passes, share=2).total(2) == passes.peak(2, states, accumulating=False)
    assert Memory(states, passes, share=4).total(2) == passes.peak(2, states, accumulating=True)


def test_logits_are_there_in_equal_parts() -> None:
    passes = Activations(0, 0, 0, 0, logits_per_sequence=LOGITS // 2 + 1, logit=8)
    assert passes.logits(1) == 8 * (LOGITS // 2 + 1)
    assert passes.logits(2) == 8 * (LOGITS // 2 + 1)  # two parts
    assert passes.logits(4) == 8 * -(-4 * (LOGITS // 2 + 1) // 3)


def test_attention_keeps_its_weights_with_dropout_alone(recipe: Maker) -> None:
    def saved(device: str, *overrides: str) -> int:
        return estimated(recipe(*WIDE, "data.length=512", *overrides), device=device).activations.per_sequence

    without = "model.block.attention.dropout=0"
    for device in ("cpu", "cuda"):
        assert saved(device) > 1.5 * saved(device, without)
    assert saved("cpu") == pytest.approx(CPU_FRAGMENTATION * saved("cuda"), rel=1e-6)


def test_recomputing_loops_takes_less(recipe: Maker) -> None:
    saved, recomputed = estimated(recipe(*WIDE)), estimated(recipe(*WIDE, "train.checkpointing=true"))
    assert recomputed.activations.per_sequence < 0.6 * saved.activations.per_sequence


def test_average_takes_a_copy_of_the_trained_weights(recipe: Maker) -> None:
    core = 'train.trainable=["core.*"]'
    plain, averaged = estimated(recipe(*WIDE, core)), estimated(recipe(*WIDE, core, "train.ema=0.99"), world=4)
    assert (plain.states.average, averaged.states.average) == (0, 4 * plain.states.parameters // 4)
    sharded = recipe(*WIDE, "train.ema=0.99", "train.deepspeed={zero_optimization: {stage: 3}}")
    whole = estimated(recipe(*WIDE, "train.ema=0.99"))
    assert estimated(sharded, world=4).states.average == whole.states.average // 4
    assert whole.states.average == whole.states.parameters
    assert whole.total(4) - estimated(recipe(*WIDE)).total(4) == whole.states.average


def test_states_are_shared_out_by_zero(recipe: Maker) -> None:
    def stage(number: int) -> States:
        return estimated(recipe(*WIDE, f"train.deepspeed={{zero_optimization: {{stage: {number}}}}}"), world=4).states

    full = stage(0)
    assert full.optimizer == 2 * full.parameters == 2 * full.gradients
    shared = [(m.parameters, m.gradients, m.optimizer) for m in (stage(1), stage(2), stage(3))]
    p, o = full.parameters, full.optimizer
    assert shared == [(p, p, o // 4), (p, p // 4, o // 4), (p // 4, p // 4, o // 4)]


def test_muon_keeps_one_number_per_matrix_parameter(recipe: Maker) -> None:
    adamw, muon = estimated(recipe(*WIDE)).states, estimated(recipe(*WIDE, "train.optimizer=muon")).states
    blocks = 4 * sum(rows * columns for rows, columns in MATRICES)
    assert muon.optimizer == adamw.optimizer - blocks
    assert 0 < blocks < muon.parameters


def test_the_budget_of_a_cpu_is_a_quarter() -> None:
    assert total_memory() > 2**28
    assert 2**26 < memory_budget(torch.device("cpu")) <= total_memory() / 4


def test_44m_model_fits_eight_sequences_in_24_gib(root: Path) -> None:
    recipe = load_recipe(root / "recipes" / "wikitext_44m_raw.yaml")
    schedule: Schedule = recipe.train.schedule.build()
    model = build_model(recipe.model, vocabulary=20_000, max_length=256, max_loops=4, device="meta")
    estimate_ = estimate(model, build_objective(recipe.objective).supervision, recipe, schedule)
    assert estimate_.total(64) > 24 * 2**30
    assert estimate_.total(8) < 6 * 2**30 < estimate_.total(16)
