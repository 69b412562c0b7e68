"""Checks, the rules of the kinds, and cases: one check of one component each."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from loopkit.registry import KINDS
from loopkit.testing.component_under_test import ComponentUnderTest, find_component

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


_CHECKS: list[Check] = []


def rule(
    name: str, kinds: Iterable[str], after: Iterable[str] = ()
) -> Callable[[Callable[[ComponentUnderTest], None]], Any]:
    """Register a function as a check; the first line of its docstring states the rule."""

    def decorate(function: Callable[[ComponentUnderTest], None]) -> Callable[[ComponentUnderTest], None]:
        sentence = (function.__doc__ or name).strip().splitlines()[0]
        _CHECKS.append(Check(name, sentence, tuple(kinds), tuple(after), function))
        return function

    return decorate


@cache
def checks_of(kind: str) -> dict[str, Check]:
    """The checks of a kind by name, in the order in which they run."""
    from loopkit.testing import checks

    assert checks.LOADED
    return {check.name: check for check in _CHECKS if kind in check.kinds}


@dataclass(frozen=True)
class Case:
    """One check of one component; calling it runs the check."""

    subject: ComponentUnderTest
    check: Check

    def __call__(self) -> None:
        """Run the check.

        Raises:
            Violation: If the component violates the rule.
            NotChecked: If the check does not apply, or a check before it failed.
            Exception: Any other exception of the component, with a note that names the check.
        """
        checks = checks_of(self.subject.schema.kind)
        for name in self.check.after:
            if name in checks and not Case(self.subject, checks[name]).passes():
                raise NotChecked(f"not checked: '{name}' failed before")
        error = self._outcome()
        if error is not None:
            raise error

    def passes(self) -> bool:
        """Whether the check and those before it pass."""
        try:
            self()
        except MissingDependency:
            return False
        except NotChecked as reason:
            return "failed before" not in str(reason)
        except Exception:
            return False
        return True

    def _outcome(self) -> Exception | None:
        """The exception of the check; it runs once, because other checks depend on its result."""
        outcomes = self.subject.outcomes
        if self.check.name not in outcomes:
            try:
                self.check.run(self.subject)
                outcomes[self.check.name] = None
            except Violation as violation:
                located = Violation(f"{self.subject}: {violation.message}", violation.seen, violation.hint)
                outcomes[self.check.name] = located.with_traceback(violation.__traceback__)
                located.__cause__ = violation.__cause__
            except Exception as error:
                if not isinstance(error, NotChecked):
                    error.add_note(f"while checking '{self.check.name}' of {self.subject}: {self.check.rule}")
                outcomes[self.check.name] = error
        return outcomes[self.check.name]

    def __str__(self) -> str:
        return f"{self.subject.schema.kind}/{self.subject.schema.name}-{self.check.name.replace(' ', '_')}"


def cases(
    component: str | type,
    *,
    options: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    plugins: Sequence[Path] = (),
) -> list[Case]:
    """List the checks of a component; call each case to run it.

    Args:
        component: The class, ``"my_package.module:Class"``, ``"file.py:Class"``, ``"kind/name"`` or ``"name"``.
        options: Its options, as a recipe would write them; the kit guesses small values for required numbers, choices
            and components.
        model: The other components of the model, by kind, if it does not work with the kit's own.
        plugins: Files with further components.

    Raises:
        ComponentNotFound: If the component does not exist.
    """
    subject = find_component(component, options, model, plugins)
    return [Case(subject, check) for check in checks_of(subject.schema.kind).values()]


def check(
    component: str | type,
    *,
    options: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    plugins: Sequence[Path] = (),
) -> None:
    """Run every check of a component; the arguments are those of ``cases``.

    Raises:
        Violation: With all violations.
        ComponentNotFound: If the component does not exist.
    """
    violations: list[str] = []
    for case in cases(component, options=options, model=model, plugins=plugins):
        try:
            case()
        except NotChecked:
            continue
        except Violation as violation:
            violations.append(f"{case.check.name}: {violation}")
    if violations:
        raise Violation("\n".join(violations))


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
