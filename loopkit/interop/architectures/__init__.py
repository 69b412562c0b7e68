"""The published forms that loopkit reads and writes: the contract, and the table of those that there are.

A form is a module with one class, listed in ``FORMS``. It says three things: what of ``config.json`` is which part of a
recipe's ``model`` section, the reverse, and which tensor is which. Everything else (files, shards, types, checks, the
way back) is the same for all of them.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from loopkit.errors import UserError
from loopkit.interop.config import Config
from loopkit.interop.weight_map import DerivedTensor, Links, Shape

FORMS = {"ouro": "Ouro", "huginn": "Huginn", "llama": "Llama"}
"""Module to class of every form."""


class UnknownForm(UserError):
    """A published model of a form that loopkit does not know."""


@dataclass(frozen=True)
class Reading:
    """A configuration as a recipe says it.

    Args:
        model: The ``model`` section, as a recipe would write it.
        objective: The ``objective`` section that says which loops it was trained at.
        loops: Loops that the model runs unless told otherwise.
        length: Longest sequence that it is made for, in tokens.
        notes: What the user should know, a line each.
    """

    model: Mapping[str, Any]
    objective: Mapping[str, Any]
    loops: int
    length: int
    notes: tuple[str, ...] = field(default=())


class Form(ABC):
    """One published form of a model.

    Attributes:
        name: What it is called here.
        model_type: ``model_type`` of its configurations.
        classes: What ``architectures`` may name.
        any_loops: Whether a model of this form can be told to run another number of loops than its configuration says.
    """

    name: ClassVar[str]
    model_type: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    any_loops: ClassVar[bool] = True

    @abstractmethod
    def read(self, config: Config) -> Reading:
        """Say a configuration as a recipe; what cannot be said is noted in ``config``."""

    @abstractmethod
    def write(self, model: Mapping[str, Any], *, loops: int, length: int) -> dict[str, Any]:
        """The configuration of a model, as well as this form can say it.

        Args:
            model: The resolved ``model`` section as plain values, ``vocabulary`` filled in. It may be of another form:
                who asks reads the result back and compares.
            loops: Loops that it runs unless told otherwise.
            length: Longest sequence that it is made for, in tokens.
        """

    @abstractmethod
    def links(self, model: Mapping[str, Any], *, length: int) -> Links:
        """Which tensor is which, for a resolved ``model`` section that this form can say.

        Args:
            model: The section as plain values, ``vocabulary`` filled in.
            length: Longest sequence that it is made for, in tokens; some forms hold tables of so many rows.
        """

    def derived(self, name: str, shape: Shape, model: Mapping[str, Any]) -> DerivedTensor | None:
        """The table that a stored tensor is, where it holds no weights but numbers that follow from the configuration.

        Older folders hold such buffers, newer ones of the same form do not.

        Args:
            name: Name of a tensor that ``links`` does not have.
            shape: Its shape in the folder.
            model: As for ``links``.

        Returns:
            None where the tensor is not one of these.
        """
        return None


def with_derived(form: Form, links: Links, model: Mapping[str, Any], there: Mapping[str, Shape]) -> Links:
    """Links that also have the derived tables of a folder.

    Args:
        form: The folder's form.
        links: Its links.
        model: As for ``Form.links``.
        there: Name and shape of every tensor of the folder.
    """
    known = {*links.theirs, *links.copies, *links.tables, *links.dropped}
    tables = {name: form.derived(name, shape, model) for name, shape in there.items() if name not in known}
    found = {name: table for name, table in tables.items() if table is not None}
    return replace(links, tables={**links.tables, **found})


def forms() -> dict[str, Form]:
    """Every form, by name."""
    found = {}
    for module, cls in FORMS.items():
        form: Form = getattr(importlib.import_module(f"{__name__}.{module}"), cls)()
        found[form.name] = form
    return found


def form_of(config: Mapping[str, Any]) -> Form:
    """The form that a configuration says it has.

    Raises:
        UnknownForm: If loopkit does not know it, with a list of those that it does.
    """
    model_type, classes = config.get("model_type"), config.get("architectures") or []
    for form in forms().values():
        if model_type == form.model_type and (not classes or set(classes) & set(form.classes)):
            return form
    known = "; ".join(f"{form.model_type} ({', '.join(form.classes)})" for form in forms().values())
    raise UnknownForm(
        f"config.json: loopkit does not read model_type {model_type!r} with architectures {classes}; known: {known}"
    )
