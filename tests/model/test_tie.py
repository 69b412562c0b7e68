"""Sharing parameters by path."""

from __future__ import annotations

import pytest
import torch

from loopkit.loop import Loops
from loopkit.recipe import component
from loopkit.recipe.format import HeadConfig, StageConfig
from tests.model.tiny import batch, tiny

NORMED = StageConfig(layers=0, norm=component("norm", "rmsnorm"))


def test_the_head_is_the_table_unless_untied() -> None:
    assert tiny().head.weight is tiny().embedding.tokens.weight or tiny().head.weight.shape == (23, 16)
    model = tiny()
    assert model.head.weight is model.embedding.tokens.weight
    assert "head.weight" in dict(tiny(head=HeadConfig(tied=False)).named_parameters())
    assert tiny(head=HeadConfig(tied=True, bias=True)).head.bias.shape == (23,)


def test_modules_and_parameters_can_be_shared_anywhere() -> None:
    model = tiny(coda=NORMED, tie={"coda.norm": "readout.norm"})
    assert model.coda.norm is model.readout.norm
    model = tiny(coda=NORMED, tie={"coda.norm.weight": "readout.norm.weight"})
    assert model.coda.norm is not model.readout.norm
    assert model.coda.norm.weight is model.readout.norm.weight
    t = model.run(batch(), Loops.fixed(2))
    t.nll([2]).mean().backward()
    assert model.readout.norm.weight.grad.abs().sum() > 0


def test_sharing_survives_a_change_of_precision() -> None:
    model = tiny().to(torch.float64)
    assert model.head.weight is model.embedding.tokens.weight


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"coda.norm": "readuot.norm"}, "the model has no 'readuot.norm'; did you mean 'readout.norm'"),
        ({"qqq": "readout.norm"}, "the model has no 'qqq'; parts: embedding, position, prelude"),
        ({"coda.norm": "head"}, r"'coda.norm' .* and 'head' .* differ in shape"),
        ({"coda.norm.weight": "embedding.tokens.weight"}, r"\[16\] and 'embedding.tokens.weight' \[23, 16\]"),
    ],
)
def test_mismatched_ties_are_rejected(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(coda=NORMED, tie=pairs)
