"""``loopkit doctor``: the optional packages, and whether their versions fit."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from loopkit.cli import doctor
from loopkit.cli.doctor import TOOLS
from tests.e2e.commands import run


def test_bounds_are_those_of_the_extras(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for tool in TOOLS.values():
        requirements = {item.name: item for item in map(Requirement, extras[tool.extra])}
        assert str(requirements[tool.distribution].specifier) == tool.fits


@pytest.mark.parametrize("module", TOOLS)
@pytest.mark.parametrize(
    ("version", "state"),
    [
        (None, "not installed: pip install 'loopkit[{extra}]', for {use}"),
        ("99.0.dev1", "99.0.dev1, fits, for {use}"),
        ("0.0.1", "0.0.1 does not fit, because loopkit needs {fits}: pip install -U 'loopkit[{extra}]', for {use}"),
    ],
)
def test_version_fits_or_has_a_remedy(
    module: str, version: str | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = TOOLS[module]
    monkeypatch.setattr("loopkit.registry.packages.is_installed", lambda name: version is not None)
    monkeypatch.setattr(doctor, "_version", lambda package: version)
    if version == "0.0.1" and not tool.fits:
        state = "0.0.1, fits, for {use}"
    expected = state.format(extra=tool.extra, use=tool.use, fits=tool.fits)
    assert json.loads(run("doctor", "--json"))["optional"][module] == expected
