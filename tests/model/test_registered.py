"""Tensors and modules that a component does not register are refused when the model is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from loopkit.components.readout import RawReadout
from loopkit.errors import UserError
from loopkit.model import build_model
from loopkit.model.registered import check_registered
from tests.model.tiny import LENGTH, LOOPS, VOCABULARY, section

LOST: dict[str, tuple[Callable[[], Any], str]] = {
    "list of modules": (lambda: [nn.Linear(2, 2)], r"use nn\.ModuleList"),
    "tuple of modules": (lambda: (nn.Linear(2, 2),), r"use nn\.ModuleList"),
    "map of modules": (lambda: {"a": nn.Linear(2, 2)}, r"use nn\.ModuleList"),
    "list of lists": (lambda: [[nn.Linear(2, 2)]], r"use nn\.ModuleList"),
    "list of parameters": (lambda: [nn.Parameter(torch.ones(2))], r"use nn\.ParameterList"),
    "plain tensor": (lambda: torch.ones(2), "use register_buffer"),
    "list of tensors": (lambda: [torch.ones(2)], "use register_buffer"),
}


def build(value: Callable[[], Any]) -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    with torch.device("meta"):
        model[0].extra = value()
    return model


@pytest.mark.parametrize("name", LOST)
def test_unregistered_tensors_are_refused(name: str) -> None:
    value, remedy = LOST[name]
    with pytest.raises(UserError, match=rf"^Linear at '0': attribute 'extra' holds .*{remedy}"):
        check_registered(build(value))


@pytest.mark.parametrize("value", [lambda: [1, "a"], lambda: nn.ModuleList([nn.Linear(2, 2)]), lambda: [nn.SiLU()]])
def test_other_attributes_need_no_registration(value: Callable[[], Any]) -> None:
    check_registered(build(value))


def test_a_module_registered_elsewhere_may_be_listed() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].again = [model[0], model[0].weight]
    check_registered(model)


def test_modules_in_plain_list_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: RawReadout) -> None:
        nn.Module.__init__(self)
        self.layers = [nn.Linear(2, 2)]

    monkeypatch.setattr(RawReadout, "__init__", forgetful)
    with pytest.raises(UserError, match=r"^RawReadout at 'readout': attribute 'layers' holds modules"):
        build_model(section(readout="raw"), vocabulary=VOCABULARY, max_length=LENGTH, max_loops=LOOPS)
