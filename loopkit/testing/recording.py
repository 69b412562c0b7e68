"""The arguments and results of a component while a model with it runs."""

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
"""Methods that are recorded for a kind; every other kind has only ``forward``."""


@dataclass(frozen=True)
class Call:
    """One call of a component.

    Args:
        method: Name of the method.
        arguments: Copies of the tensor arguments, by name, taken before the call.
        arguments_after: The tensor arguments after the call.
        result: What the method returned.
    """

    method: str
    arguments: dict[str, Tensor]
    arguments_after: dict[str, Tensor]
    result: Any


@dataclass
class Recording:
    """The calls of one run, and the exception that ended it, if any."""

    calls: list[Call] = field(default_factory=list)
    crash: Exception | None = None


def record_calls(
    subject: ComponentUnderTest, *, dtype: torch.dtype = torch.float32, autocast: bool = False
) -> Recording:
    """Run a model with the subject in evaluation mode and record its calls; computed once per precision."""
    key = ("recording", dtype, autocast)
    if key not in subject.memo:
        subject.memo[key] = _record(subject, default_model(subject, dtype), autocast)
    recording: Recording = subject.memo[key]
    return recording


@torch.no_grad()
def _record(subject: ComponentUnderTest, model: LoopedModel, autocast: bool) -> Recording:
    recording = Recording()
    for instance in find_instances(subject, model):
        for method in METHODS.get(subject.schema.kind, ("forward",)):
            setattr(instance, method, _recorder(recording.calls, method, getattr(instance, method)))
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            t = run_model(model, random_batch())
            for k in range(1, LOOPS + 1):
                t.logits(k)
                if "gate" in subject.traits.get("provides", ()):
                    t.gate(k)
    except Exception as error:
        recording.crash = error
    return recording


def _recorder(calls: list[Call], method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    names = function.__code__.co_varnames[1:] if hasattr(function, "__code__") else ()

    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = _tensor_arguments({**dict(zip(names, args, strict=False)), **kwargs})
        before = {name: value.clone() for name, value in tensors.items()}
        result = function(*args, **kwargs)
        calls.append(Call(method, before, tensors, result))
        return result

    return call


def _tensor_arguments(arguments: dict[str, Any]) -> dict[str, Tensor]:
    """Every tensor that a component can reach through its arguments, including those in a ``Step``."""
    tensors: dict[str, Tensor] = {}
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, Step):
            for item in fields(value):
                if isinstance(tensor := getattr(value, item.name), Tensor):
                    tensors[f"{name}.{item.name}"] = tensor
    return tensors


def output_tensors(result: Any) -> list[Tensor]:
    """The tensors that a component returned."""
    values = result if isinstance(result, tuple | list) else [result]
    return [value for value in values if isinstance(value, Tensor)]


def find_instances(subject: ComponentUnderTest, model: nn.Module) -> list[nn.Module]:
    """The instances of the subject in a model."""
    return [module for module in model.modules() if type(module) is subject.cls]
