"""The published forms that loopkit reads and writes: their contract and their table.

A form is a module with one class, listed in ``FORMS``. It defines three things: how ``config.json`` becomes a recipe's
``model`` section, the reverse, and which tensor is which. Everything else (files, shards, types, checks) is shared.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from loopkit.errors import UserError
from loopkit.interop.config import Config
from loopkit.interop.weight_map import Buffer, Shape, WeightMap

FORMS = {"ouro": "Ouro", "huginn": "Huginn", "llama": "Llama", "nanbeige": "Nanbeige", "loopkit": "SelfContained"}
"""Module to class of every form."""

OWN = "loopkit"
"""The form with modelling code in the folder."""


class UnknownForm(UserError):
    """loopkit does not read published models of this form."""


@dataclass(frozen=True)
class ParsedConfig:
    """A published configuration in the terms of a recipe.

    Args:
        model: The ``model`` section, as a recipe writes it.
        objective: The ``objective`` section: the loops that its loss reads.
        loops: Loops that the model runs by default.
        length: Longest sequence that it supports, in tokens.
        notes: What the user should know, a line each.
        max_loops: Maximum number of loops in training; None if the form does not state it.
        schedule: The ``train.schedule`` section of training; None: always ``loops``.
    """

    model: Mapping[str, Any]
    objective: Mapping[str, Any]
    loops: int
    length: int
    notes: tuple[str, ...] = field(default=())
    max_loops: int | None = None
    schedule: Mapping[str, Any] | None = None


class Form(ABC):
    """One published form of a model.

    Attributes:
        name: Its name in loopkit.
        model_type: ``model_type`` of its configurations.
        classes: Accepted values of ``architectures``.
        any_loops: Whether a caller can run another number of loops than the configuration states.
    """

    name: ClassVar[str]
    model_type: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    any_loops: ClassVar[bool] = True

    @abstractmethod
    def read(self, config: Config) -> ParsedConfig:
        """Translate a configuration; values that no recipe can represent are rejected through ``config``."""

    @abstractmethod
    def write(self, model: Mapping[str, Any], *, loops: int, max_loops: int, length: int) -> dict[str, Any]:
        """Return the configuration of a model, as closely as this form can represent it.

        Args:
            model: The resolved ``model`` section as plain values, ``vocabulary`` filled in. It may be of another form:
                the caller reads the result back and compares.
            loops: Loops that it runs by default.
            max_loops: Maximum number of loops in training.
            length: Longest sequence that it supports, in tokens.
        """

    @abstractmethod
    def weight_map(self, model: Mapping[str, Any], *, length: int, max_loops: int) -> WeightMap:
        """Return which tensor is which, for a resolved ``model`` section that this form can represent.

        Args:
            model: The section as plain values, ``vocabulary`` filled in.
            length: Longest sequence that it supports, in tokens; buffers of some forms have that many rows.
            max_loops: Maximum number of loops in training; some components have parameters for each.
        """

    def buffer(self, name: str, shape: Shape, model: Mapping[str, Any]) -> Buffer | None:
        """Return the buffer that a stored tensor is: numbers that follow from the configuration.

        Older folders hold such buffers, newer ones of the same form do not.

        Args:
            name: Name of a tensor that ``weight_map`` does not have.
            shape: Its shape in the folder.
            model: As for ``weight_map``.

        Returns:
            None if the tensor is not a buffer.
        """
        return None


def with_buffers(form: Form, weight_map: WeightMap, model: Mapping[str, Any], stored: Mapping[str, Shape]) -> WeightMap:
    """Add the buffers that a folder stores to its weight map.

    Args:
        form: The folder's form.
        weight_map: Its map.
        model: As for ``Form.weight_map``.
        stored: Name and shape of every tensor of the folder.
    """
    candidates = {
        name: form.buffer(name, shape, model) for name, shape in stored.items() if name not in weight_map.names
    }
    buffers = {name: buffer for name, buffer in candidates.items() if buffer is not None}
    return replace(weight_map, buffers={**weight_map.buffers, **buffers})


def forms() -> dict[str, Form]:
    """Every form, by name."""
    classes = [getattr(importlib.import_module(f"{__name__}.{module}"), name) for module, name in FORMS.items()]
    return {form.name: form() for form in classes}


def published_forms() -> dict[str, Form]:
    """The forms of other tools, by name: all but loopkit's own, which has modelling code in the folder."""
    return {name: form for name, form in forms().items() if name != OWN}


def form_of(config: Mapping[str, Any]) -> Form:
    """The form of a configuration.

    Raises:
        UnknownForm: If loopkit does not read it; the message lists those that it reads.
    """
    model_type, classes = config.get("model_type"), config.get("architectures") or []
    for form in forms().values():
        if model_type == form.model_type and (not classes or set(classes) & set(form.classes)):
            return form
    supported = "; ".join(f"{form.model_type} ({', '.join(form.classes)})" for form in forms().values())
    raise UnknownForm(
        f"config.json: loopkit does not read model_type {model_type!r} with architectures {classes}; it reads "
        f"{supported}"
    )
