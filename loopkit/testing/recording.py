"""What a component was given and what it gave, while a model around it ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from loopkit.loop import Step
from loopkit.model import LoopedModel
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, default_model, random_batch, run_model

METHODS = {"position": ("embed", "rotate"), "core": ("forward", "emit")}
"""What is called of a kind, where it is not ``forward`` alone."""


@dataclass(frozen=True)
class Call:
    """One call of a component.

    Args:
        method: Which of its methods.
        given: Tensors it was given, by name, as they were before the call.
        after: The same tensors after the call.
        gave: What it returned.
    """

    method: str
    given: dict[str, Tensor]
    after: dict[str, Tensor]
    gave: Any


@dataclass
class Recording:
    """The calls of a run, and what ended it if it did not end by itself."""

    calls: list[Call] = field(default_factory=list)
    crash: Exception | None = None


def record_calls(
    subject: ComponentUnderTest, *, dtype: torch.dtype = torch.float32, autocast: bool = False
) -> Recording:
    """Run a model around the subject in evaluation mode and note each of its calls; done once per precision."""
    key = ("recording", dtype, autocast)
    if key not in subject.memo:
        subject.memo[key] = _record(subject, default_model(subject, dtype), autocast)
    found: Recording = subject.memo[key]
    return found


@torch.no_grad()
def _record(subject: ComponentUnderTest, around: LoopedModel, autocast: bool) -> Recording:
    recording = Recording()
    for part in around.modules():
        if type(part) is subject.cls:
            for method in METHODS.get(subject.schema.kind, ("forward",)):
                setattr(part, method, _noting(recording.calls, method, getattr(part, method)))
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            t = run_model(around, random_batch())
            for k in range(1, LOOPS + 1):
                t.logits(k)
                if "gate" in subject.traits.get("provides", ()):
                    t.gate(k)
    except Exception as error:
        recording.crash = error
    return recording


def _noting(calls: list[Call], method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    names = function.__code__.co_varnames[1:] if hasattr(function, "__code__") else ()

    def noted(*given: Any, **named: Any) -> Any:
        arguments = dict(_tensors({**dict(zip(names, given, strict=False)), **named}))
        before = {name: value.clone() for name, value in arguments.items()}
        gave = function(*given, **named)
        calls.append(Call(method, before, arguments, gave))
        return gave

    return noted


def _tensors(arguments: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """Every tensor that a component can reach through its arguments."""
    found: list[tuple[str, Tensor]] = []
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            found.append((name, value))
        elif isinstance(value, Step):
            inner = ((item.name, getattr(value, item.name)) for item in fields(value))
            found += [(f"{name}.{part}", tensor) for part, tensor in inner if isinstance(tensor, Tensor)]
    return found


def output_tensors(gave: Any) -> list[Tensor]:
    """The tensors that a component returned."""
    parts = gave if isinstance(gave, tuple | list) else [gave]
    return [part for part in parts if isinstance(part, Tensor)]


def find_instances(subject: ComponentUnderTest, around: nn.Module) -> list[nn.Module]:
    """The instances of the subject in a model."""
    return [part for part in around.modules() if type(part) is subject.cls]
