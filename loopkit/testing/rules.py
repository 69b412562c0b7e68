"""The rules of the kinds: a check is one rule, registered by the function that checks it."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.registry import KINDS
from loopkit.testing.component_under_test import ComponentUnderTest

LOOP = ("block", "core", "injection", "carry", "readout", "attention", "mlp", "norm", "placement")
"""Kinds that are modules inside the loop or read its state."""

MODULES = (*LOOP, "position", "start", "gate")
"""Kinds that are modules of a model."""

ALL_KINDS = tuple(KINDS)


class Violation(AssertionError):
    """A component violates a rule of its kind.

    Args:
        message: The violation, as a statement about the component.
        seen: The values that show it.
        hint: Where to look, with an example of the correct form.
    """

    def __init__(self, message: str, seen: str = "", hint: str = "") -> None:
        self.message, self.seen, self.hint = message, seen, hint
        lines = [message, *([f"  seen: {seen}"] if seen else []), *([f"  hint: {hint}"] if hint else [])]
        super().__init__("\n".join(lines))


class NotChecked(unittest.SkipTest):
    """A check does not apply, or an earlier failure makes it meaningless; test runners report it as skipped."""


class MissingDependency(NotChecked):
    """A package that the component needs is not installed, so no later check can run."""


@dataclass(frozen=True)
class Check:
    """One rule.

    Args:
        name: One or two words, unique within a kind.
        rule: The rule as a sentence.
        kinds: Kinds to which it applies.
        after: Checks that must pass first, because their faults would show here too, under a misleading name.
        run: Raises a ``Violation`` or ``NotChecked``.
    """

    name: str
    rule: str
    kinds: tuple[str, ...]
    after: tuple[str, ...]
    run: Callable[[ComponentUnderTest], None]


CHECKS: list[Check] = []
"""Every check, in the order in which the modules of ``loopkit.testing.checks`` are imported."""


def rule(
    name: str, kinds: Iterable[str], after: Iterable[str] = ()
) -> Callable[[Callable[[ComponentUnderTest], None]], Any]:
    """Register a function as a check; the first line of its docstring states the rule."""

    def decorate(function: Callable[[ComponentUnderTest], None]) -> Callable[[ComponentUnderTest], None]:
        sentence = (function.__doc__ or name).strip().splitlines()[0]
        CHECKS.append(Check(name, sentence, tuple(kinds), tuple(after), function))
        return function

    return decorate


@contextmanager
def report_as_violation(message: str, hint: str = "") -> Iterator[None]:
    """Convert an exception that the component raises in the block into a violation, with the exception as its cause."""
    try:
        yield
    except (Violation, NotChecked):
        raise
    except Exception as error:
        raise Violation(message, f"{type(error).__name__}: {_shorten(error)}{_location(error)}", hint) from error


def _shorten(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 300 else text[:297] + "..."


def _location(error: Exception) -> str:
    """The innermost line outside of torch and of the kit."""
    location, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if not {"torch", "testing", "contextlib.py"} & {file.name, *file.parts[-3:]}:
            location = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    return location
