"""Checks, and a check of one component: a case, which passes or says in words what is violated."""

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
"""Kinds that are modules inside the loop, or read its state."""

MODULES = (*LOOP, "position", "start", "gate")
"""Kinds that are modules of a model."""

ALL_KINDS = tuple(KINDS)


class Violation(AssertionError):
    """A component does not do what its kind must.

    Args:
        what: The rule that is broken, as a statement about the component.
        seen: What was found, with figures.
        hint: Where to look, and an example of how it is done.
    """

    def __init__(self, what: str, seen: str = "", hint: str = "") -> None:
        self.what, self.seen, self.hint = what, seen, hint
        lines = [what, *([f"  seen: {seen}"] if seen else []), *([f"  hint: {hint}"] if hint else [])]
        super().__init__("\n".join(lines))


class NotChecked(unittest.SkipTest):
    """A check that does not apply, or that an earlier failure makes meaningless; test runners show it as skipped."""


class MissingDependency(NotChecked):
    """Something that the component needs is not installed, so nothing that follows can be checked either."""


@dataclass(frozen=True)
class Check:
    """One rule.

    Args:
        name: A word or two, unique within a kind.
        says: The rule as a sentence.
        kinds: Whom it binds.
        after: Checks that must have passed before: their faults would show here too, under a misleading name.
        run: Raises a ``Violation`` or ``NotChecked``.
    """

    name: str
    says: str
    kinds: tuple[str, ...]
    after: tuple[str, ...]
    run: Callable[[ComponentUnderTest], None]


_CHECKS: list[Check] = []


def rule(
    name: str, kinds: Iterable[str], after: Iterable[str] = ()
) -> Callable[[Callable[[ComponentUnderTest], None]], Any]:
    """Make a function a check; its docstring's first line is the rule as a sentence."""

    def decorate(function: Callable[[ComponentUnderTest], None]) -> Callable[[ComponentUnderTest], None]:
        says = (function.__doc__ or name).strip().splitlines()[0]
        _CHECKS.append(Check(name, says, tuple(kinds), tuple(after), function))
        return function

    return decorate


@cache
def checks_of(kind: str) -> dict[str, Check]:
    """The checks of a kind by name, in the order in which they make sense."""
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
            Violation: In words.
            NotChecked: If it does not apply, or a check before it failed.
            Exception: What the component raised where no rule speaks of it, with a note that names the check.
        """
        known = checks_of(self.subject.schema.kind)
        for name in self.check.after:
            if name in known and not Case(self.subject, known[name]).passes():
                raise NotChecked(f"not checked: '{name}' failed before")
        error = self._outcome()
        if error is not None:
            raise error

    def passes(self) -> bool:
        """Whether the check, and those before it, hold."""
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
        """What the check raised; run once, because others wait for its result."""
        outcomes = self.subject.outcomes
        if self.check.name not in outcomes:
            try:
                self.check.run(self.subject)
                outcomes[self.check.name] = None
            except Violation as violation:
                where = f"{self.subject}: {violation.what}"
                named = Violation(where, violation.seen, violation.hint)
                outcomes[self.check.name] = named.with_traceback(violation.__traceback__)
                named.__cause__ = violation.__cause__
            except Exception as error:
                if not isinstance(error, NotChecked):
                    error.add_note(f"while checking '{self.check.name}' of {self.subject}: {self.check.says}")
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
    """Every check of a component, each to be called.

    Args:
        component: The class, ``"my_package.module:Class"``, ``"file.py:Class"``, ``"kind/name"`` or ``"name"``.
        options: Options to build it with, as a recipe would write them; the kit guesses small values for required ones
            that are numbers, choices or components.
        model: Components to have around it, by kind, where it cannot work with the kit's own.
        plugins: Files with further components.

    Raises:
        NoSubject: If there is no such component.
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
        Violation: With everything that is violated.
        NoSubject: If there is no such component.
    """
    found: list[str] = []
    for case in cases(component, options=options, model=model, plugins=plugins):
        try:
            case()
        except NotChecked:
            continue
        except Violation as violation:
            found.append(f"{case.check.name}: {violation}")
    if found:
        raise Violation("\n".join(found))


@contextmanager
def report_as_violation(what: str, hint: str = "") -> Iterator[None]:
    """Turn whatever the component raises inside into a violation of a rule, with the exception as its cause."""
    try:
        yield
    except (Violation, NotChecked):
        raise
    except Exception as error:
        raise Violation(what, f"{type(error).__name__}: {_short(error)}{_place(error)}", hint) from error


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 300 else text[:297] + "..."


def _place(error: Exception) -> str:
    """The innermost line outside of torch and of the kit."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if not {"torch", "testing", "contextlib.py"} & {file.name, *file.parts[-3:]}:
            place = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place
