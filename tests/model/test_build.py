"""Building: sizes of the paper's models, first weights, and models without numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from loopkit.loop import Loops
from loopkit.model import build_model, count_parameters
from tests.model.tiny import batch, section, tiny


def paper(width: int, heads: int, layers: int, readout: str) -> int:
    block: dict[str, Any] = {
        "type": "transformer",
        "attention": {"heads": heads},
        "mlp": {"type": "swiglu", "ratio": 4},
    }
    chosen = section(width=width, block=block, core=layers, position="learned", readout=readout, init="torch_default")
    model = build_model(chosen, vocabulary=20000, max_length=256, max_loops=4, device="meta")
    return count_parameters(model).unique


@pytest.mark.parametrize(
    ("width", "heads", "layers", "readout", "parameters"),
    [
        (512, 8, 8, "raw", 43_933_696),
        (512, 8, 8, "norm", 43_934_208),
        (768, 12, 12, "raw", 128_821_248),
        (768, 12, 12, "norm", 128_822_016),
    ],
)
def test_parameter_counts_equal_the_paper(width: int, heads: int, layers: int, readout: str, parameters: int) -> None:
    assert paper(width, heads, layers, readout) == parameters


def test_weights_without_seed_are_nan() -> None:
    model = build_model(section(), vocabulary=23, max_length=12, max_loops=2)
    assert model.embedding.tokens.weight.isnan().all()
    assert not model.run(batch(), Loops.fixed(1)).logits(1).isfinite().any()


def test_scaled_init_counts_core_layers_per_loop() -> None:
    parts: dict[str, Any] = {"init": "scaled", "prelude": 1, "coda": 1, "core": 2, "width": 64}
    parts["block"] = {"type": "transformer", "attention": {"heads": 2}, "mlp": {"hidden": 4000}}

    def std(**more: Any) -> float:
        model = build_model(section(**parts), vocabulary=5, max_length=4, max_loops=8, seed=0, **more)
        return model.core.blocks[0].mlp.out.weight.std().item() / (2 / (5 * 64)) ** 0.5

    assert std() == pytest.approx((2 * (2 + 2 * 8)) ** -0.5, rel=0.02)
    assert std(mean_loops=3.0) == pytest.approx((2 * (2 + 2 * 3)) ** -0.5, rel=0.02)


def test_a_seed_fixes_every_weight() -> None:
    a, b = tiny(seed=5), tiny(seed=5)
    assert all(torch.equal(value, b.state_dict()[name]) for name, value in a.state_dict().items())


def test_vocabulary_table_covers_the_tokenizer() -> None:
    model = build_model(section(vocabulary=32), vocabulary=23, max_length=12, max_loops=4, seed=0)
    assert (model.vocabulary, model.head.weight.shape[0]) == (32, 32)
    with pytest.raises(ValueError, match=r"model.vocabulary: a table of 22 rows cannot hold the 23 tokens"):
        build_model(section(vocabulary=22), vocabulary=23, max_length=12, max_loops=4)
