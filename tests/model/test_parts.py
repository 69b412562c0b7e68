"""Blocks are numbered through the whole model, so that no two share a cache slot."""

from __future__ import annotations

import inspect

import pytest

from loopkit.components.attention import Attention
from loopkit.components.block import Transformer
from loopkit.recipe import component
from loopkit.recipe.format import StageConfig
from tests.model.tiny import tiny


def test_layers_are_numbered_in_forward_order() -> None:
    model = tiny(prelude=2, core=3, coda=1)
    layers = {name: part.layer for name, part in model.named_modules() if isinstance(part, Attention)}
    assert list(layers.values()) == [0, 1, 2, 3, 4, 5]
    assert layers["core.blocks.0.attention"] == 2
    assert layers["coda.blocks.0.attention"] == 5
    assert (model.layers, model.core_layers) == (6, 3)


def test_stage_can_override_the_block() -> None:
    other = component("block", {"type": "transformer", "attention": {"heads": 4}, "mlp": "gelu"}, width=16)
    model = tiny(prelude=StageConfig(layers=1, block=other), core=1)
    assert model.prelude.blocks[0].attention.heads == 4
    assert model.core.blocks[0].attention.heads == 2


def test_prelude_and_coda_blocks_get_zero_max_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    built_with: list[tuple[int, int]] = []
    build = Transformer.__init__

    def note(self: Transformer, width: int, position: object, layer: int, max_loops: int, **options: object) -> None:
        built_with.append((layer, max_loops))
        build(self, width, position, layer, max_loops, **options)  # type: ignore[arg-type]

    note.__signature__ = inspect.signature(build)  # type: ignore[attr-defined]
    monkeypatch.setattr(Transformer, "__init__", note)
    own = component("block", {"type": "transformer", "attention": {"heads": 2}}, width=16)
    tiny(prelude=1, core=2, coda=StageConfig(layers=1, block=own), max_loops=5)
    assert built_with == [(0, 0), (1, 5), (2, 5), (3, 0)]


def test_names_of_parameters_are_readable() -> None:
    model = tiny(prelude=1, core=1, coda=StageConfig(layers=1, norm=component("norm", "rmsnorm")), position="learned")
    names = list(dict(model.named_parameters()))
    assert names[:2] == ["embedding.tokens.weight", "position.table.weight"]
    assert "prelude.blocks.0.attention.qkv.weight" in names
    assert "core.blocks.0.around_mlp.norm.weight" in names
    assert "coda.norm.weight" in names
    assert "readout.norm.weight" in names
    assert "head.weight" not in names
