"""The kit as a pytest plugin: ``pytest --loopkit-component my_package:MyReadout``.

pytest loads this file at every start, wherever loopkit is installed, so it imports nothing that takes time until the
option is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from loopkit.testing.case import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tell pytest of our options."""
    group = parser.getgroup("loopkit", "conformance of loopkit components")
    group.addoption(
        "--loopkit-component",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="Check this component as its kind demands: module:Class, file.py:Class or kind/name; may repeat. "
        "Without paths, nothing else is run.",
    )
    group.addoption(
        "--loopkit-options",
        metavar="JSON",
        help="Options to build it with, such as '{\"heads\": 2}'; the kit guesses required numbers and choices.",
    )
    group.addoption(
        "--loopkit-plugins",
        action="append",
        default=[],
        metavar="FILE",
        help="A Python file with further components that the component or --loopkit-model names; may repeat.",
    )
    group.addoption(
        "--loopkit-model",
        metavar="JSON",
        help='Components to have around it, by kind, such as \'{"start": "two_streams"}\'.',
    )


def pytest_configure(config: pytest.Config) -> None:
    """Without paths, the components alone are checked."""
    if not config.getoption("loopkit_component"):
        if any(config.getoption(f"loopkit_{name}") for name in ("options", "model", "plugins")):
            raise pytest.UsageError("--loopkit-options, -model and -plugins belong to a --loopkit-component")
    elif config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks of every component that was named."""
    for name in config.getoption("loopkit_component"):
        component = Component.from_parent(session, name=name, nodeid=name)
        items += component.collect()


class Component(pytest.Collector):
    """One component; its items are the checks of its kind."""

    def collect(self) -> list[pytest.Item]:
        """One item per check."""
        from loopkit.errors import UserError
        from loopkit.testing import cases

        options, model = (_json(self.config, option) for option in ("loopkit_options", "loopkit_model"))
        try:
            files = [Path(file) for file in self.config.getoption("loopkit_plugins")]
            found = cases(self.name, options=options, model=model, plugins=files)
        except UserError as error:
            raise pytest.UsageError(f"--loopkit-component {self.name}: {error}") from None
        return [Conformance.from_parent(self, name=case.check.name.replace(" ", "_"), case=case) for case in found]


def _json(config: pytest.Config, option: str) -> dict[str, Any]:
    text = config.getoption(option) or "{}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise pytest.UsageError(f"--{option.replace('_', '-')} {text}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise pytest.UsageError(f"--{option.replace('_', '-')} {text}: write a map")
    return value


class Conformance(pytest.Item):
    """One check of one component."""

    def __init__(self, *, case: Case, **more: Any) -> None:
        super().__init__(**more)
        self.case = case

    def runtest(self) -> None:
        """Run the check."""
        self.case()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A violation in words; a traceback only of what no rule speaks of."""
        from loopkit.testing import Violation

        if isinstance(excinfo.value, Violation):
            return f"{excinfo.value}\n  rule: {self.case.check.says}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int, str]:
        """Where a report points: the component's class."""
        schema = self.case.subject.schema
        return schema.file, schema.line - 1, f"{schema.kind}/{schema.name}: {self.case.check.says}"
