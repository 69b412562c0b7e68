"""Cases: one check of one component each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from loopkit.testing import checks
from loopkit.testing.component_under_test import ComponentUnderTest, find_component
from loopkit.testing.rules import CHECKS, Check, MissingDependency, NotChecked, Violation


@cache
def checks_of(kind: str) -> dict[str, Check]:
    """The checks of a kind by name, in the order in which they run."""
    assert checks.LOADED
    return {check.name: check for check in CHECKS if kind in check.kinds}


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
        earlier = checks_of(self.subject.schema.kind)
        for name in self.check.after:
            if name in earlier and not Case(self.subject, earlier[name]).passes():
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
