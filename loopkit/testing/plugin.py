"""The kit as a pytest plugin: ``pytest --loopkit-component my_package:MyReadout``.

pytest imports this module at every start wherever loopkit is installed, so slow imports wait until the option is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from loopkit.testing.case import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("loopkit", "conformance of loopkit components")
    group.addoption(
        "--loopkit-component",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="Check this component against the rules of its kind: module:Class, file.py:Class or kind/name; may "
        "repeat. Without paths, no other test runs.",
    )
    group.addoption(
        "--loopkit-options",
        metavar="JSON",
        help="Options of the component, such as '{\"heads\": 2}'; the kit guesses required numbers and choices.",
    )
    group.addoption(
        "--loopkit-plugins",
        action="append",
        default=[],
        metavar="FILE",
        help="A Python file with other components that the component or --loopkit-model uses; may repeat.",
    )
    group.addoption(
        "--loopkit-model",
        metavar="JSON",
        help='The other components of the model, by kind, such as \'{"start": "two_streams"}\'.',
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect only the components if no paths are given."""
    if not config.getoption("loopkit_component"):
        if any(config.getoption(f"loopkit_{name}") for name in ("options", "model", "plugins")):
            raise pytest.UsageError("--loopkit-options, --loopkit-model and --loopkit-plugins need --loopkit-component")
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
            selected = cases(self.name, options=options, model=model, plugins=files)
        except UserError as error:
            raise pytest.UsageError(f"--loopkit-component {self.name}: {error}") from None
        return [Conformance.from_parent(self, name=case.check.name.replace(" ", "_"), case=case) for case in selected]


def _json(config: pytest.Config, option: str) -> dict[str, Any]:
    text = config.getoption(option) or "{}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise pytest.UsageError(
            f"--{option.replace('_', '-')} {text}: is not a JSON object; write it as '{{\"name\": value}}', quoted"
        )
    return value


class Conformance(pytest.Item):
    """One check of one component."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case

    def runtest(self) -> None:
        """Run the check."""
        self.case()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Format a violation without a traceback; any other exception keeps its own."""
        from loopkit.testing import Violation

        if isinstance(excinfo.value, Violation):
            return f"{excinfo.value}\n  rule: {self.case.check.rule}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int, str]:
        """Point reports at the class of the component."""
        schema = self.case.subject.schema
        return schema.file, schema.line - 1, f"{schema.kind}/{schema.name}: {self.case.check.rule}"
