"""Trainable parameters and their groups."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import nn

from loopkit.model import build_model
from loopkit.model.parameter_groups import freeze, parameter_groups
from loopkit.objective import build_objective
from loopkit.training.step.module import TrainingModule
from tests.training.conftest import Maker, recipe  # noqa: F401 (a fixture)


class Diagonal(nn.Module):
    no_decay: ClassVar[frozenset[str]] = frozenset({"log_decay"})

    def __init__(self) -> None:
        super().__init__()
        self.log_decay = nn.Parameter(torch.zeros(3, 3))
        self.gain = nn.Parameter(torch.ones(3))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.ModuleDict({"tokens": nn.Embedding(5, 3)})
        self.core = nn.Linear(3, 3)
        self.injection = Diagonal()
        self.gate = nn.Linear(3, 1)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding["tokens"].weight  # type: ignore[assignment]


def test_each_parameter_has_exactly_one_group() -> None:
    model = Model()
    groups = parameter_groups(model)
    grouped = [id(parameter) for group in groups for parameter in group.params]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
    assert {(group.name, group.role, group.decay, len(group.params)) for group in groups} == {
        ("embedding", "embedding", True, 1),
        ("matrix", "matrix", True, 2),
        ("vector", "vector", True, 3),
        ("matrix_no_decay", "matrix", False, 1),
    }


def test_groups_carry_names_and_stacked_rows(recipe: Maker) -> None:  # noqa: F811
    resolved = recipe()
    model = build_model(resolved.model, vocabulary=40, max_length=16, max_loops=4, device="meta")
    groups = parameter_groups(TrainingModule(model, build_objective(resolved.objective), seed=1, precision="fp32"))
    names = {name: parameter for group in groups for name, parameter in zip(group.names, group.params, strict=True)}
    assert names.keys() == {name for name, _ in model.named_parameters()}
    qkv = names["core.blocks.0.attention.qkv.weight"]
    assert all(group.stacked == {id(qkv): (16, 16, 16)} for group in groups)


def test_tables_in_blocks_are_embeddings(recipe: Maker) -> None:  # noqa: F811
    resolved = recipe("model.block.attention={type: causal, heads: 2, value_embeddings: all, value_gate: 4}")
    model = build_model(resolved.model, vocabulary=40, max_length=16, max_loops=4, device="meta")
    (tables,) = (group.names for group in parameter_groups(model) if group.role == "embedding")
    assert tables == (
        "embedding.tokens.weight",
        "position.table.weight",
        "core.blocks.0.attention.value_table.weight",
    )


def test_patterns_choose_what_is_trained() -> None:
    model = Model()
    assert freeze(model, ["gate.*"]) == ["gate.weight", "gate.bias"]
    assert [group.name for group in parameter_groups(model)] == ["matrix", "vector"]
    assert freeze(model, ["*"]) == [name for name, _ in model.named_parameters()]


def test_pattern_matches_any_name_of_shared_parameter() -> None:
    model = Model()
    assert freeze(model, ["head.*"]) == ["embedding.tokens.weight"]


def test_unmatched_pattern_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"no parameter matches 'gates\.\*'; there are core\.\*, embedding\.\*, gate"):
        freeze(Model(), ["core.*", "gates.*"])
