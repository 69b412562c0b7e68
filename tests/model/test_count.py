"""Parameters, FLOPs and cache sizes equal manual counts."""

from __future__ import annotations

import pytest

from loopkit.model import cache_numbers, count_flops, count_parameters
from loopkit.recipe.format import HeadConfig
from tests.model.tiny import VOCABULARY, tiny

BLOCK = {"type": "transformer", "attention": {"heads": 4, "kv_heads": 2}, "mlp": {"ratio": 2}}
PER_BLOCK = 16 * (16 + 2 * 8) + 16 * 16 + 3 * 16 * 32
PARTS = {"block": BLOCK, "prelude": 1, "core": 2, "coda": 1, "injection": "concat"}


def test_parameters_by_part_and_by_depth() -> None:
    count = count_parameters(tiny(**PARTS))
    core = 2 * (PER_BLOCK + 2 * 16)
    assert count.parts["core"] == core
    assert count.parts["embedding"] == VOCABULARY * 16
    assert "head" not in count.parts
    assert count.looped == core + 2 * 16 * 16
    assert count.unique == sum(count.parts.values())
    assert count.effective(1) == count.unique
    assert count.effective(4) == count.unique + 3 * count.looped
    assert count_parameters(tiny(head=HeadConfig(tied=False))).parts["head"] == VOCABULARY * 16


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("length", [4, 8])
def test_flops_are_two_per_weight_and_attended_pair(depth: int, length: int) -> None:
    flops = count_flops(tiny(**PARTS), depth, length)
    block = 2 * PER_BLOCK + 2 * 2 * length * 16
    loop = 2 * block + 2 * 2 * 16 * 16
    assert flops.prelude == block
    assert flops.loops == (loop,) * depth
    assert flops.read == block + 2 * 16 * VOCABULARY
    assert flops.forward(reads=2) == block + depth * loop + 2 * flops.read
    trained = flops.prelude + loop + flops.read
    assert flops.training(backprop=1, reads=1) == flops.forward() + 2 * trained


def test_cache_has_one_slot_per_layer_and_loop() -> None:
    assert cache_numbers(tiny(**PARTS), 1) == 4 * 16
    assert cache_numbers(tiny(**PARTS), 5) == (1 + 2 * 5 + 1) * 16


def test_value_embeddings_add_parameters_but_few_flops() -> None:
    attention = {"heads": 4, "kv_heads": 2, "value_embeddings": "odd", "value_gate": 4}
    plain, model = tiny(**PARTS), tiny(**(PARTS | {"block": BLOCK | {"attention": attention}}))
    extra = VOCABULARY * 2 * 4 + 4 * 2  # layers 1, in the core, and 3, in the coda, have a table and a gate
    before, after = count_parameters(plain), count_parameters(model)
    assert {
        part: after.parts[part] - before.parts[part] for part in after.parts if part in ("prelude", "core", "coda")
    } == {
        "prelude": 0,
        "core": extra,
        "coda": extra,
    }
    assert after.looped == before.looped + extra
    gates = [count_flops(each, 2, 8) for each in (plain, model)]
    assert gates[1].loops[0] - gates[0].loops[0] == gates[1].read - gates[0].read == 2 * 4 * 2
    assert cache_numbers(model, 5) == cache_numbers(plain, 5)
