"""The editor's schema: accepts every recipe in the tree, and refuses what an editor should underline."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is in the test extra")

from loopkit.recipe.authoring.editor_schema import editor_schema  # noqa: E402
from loopkit.recipe.read import read_file  # noqa: E402
from loopkit.registry.catalog import catalog  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPES = [file for file in sorted((ROOT / "recipes").rglob("*.yaml")) if "studies" not in file.parts]
SCHEMA = editor_schema(catalog())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def test_schema_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_every_recipe_passes(file: Path) -> None:
    errors = [
        f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in VALIDATOR.iter_errors(read_file(file).plain())
    ]
    assert errors == []


@pytest.mark.parametrize(
    "text",
    [
        "{loopkit: 2, modle: {}}",
        "{loopkit: 2, model: {widht: 3}}",
        "{loopkit: 2, model: {readout: rw}}",
        "{loopkit: 2, train: {schedule: {type: lognormal, sigmma: 1}}}",
        "{loopkit: 2, train: {schedule: {sigmma: 1}}}",
        "{loopkit: 2, train: {schedule: {type: fixed, sigma: 1}}}",
        "{loopkit: 2, objective: {regularizers: {norm_penalty: {wieght: 1}}}}",
        "{loopkit: 2, train: {clip: fast}}",
        "{loopkit: 2, profiles: {mini: {profiles: {}}}}",
        "{extends: x}",
    ],
)
def test_schema_rejects_what_validate_rejects(text: str) -> None:
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_options_have_descriptions() -> None:
    assert "Channels of the state" in SCHEMA["definitions"]["section.ModelConfig"]["properties"]["width"]["description"]
