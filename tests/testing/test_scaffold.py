"""``loopkit new``: generated packages pass the kit, and generated recipes are valid."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.recipe import load_recipe
from loopkit.registry import KINDS
from loopkit.testing import cases
from loopkit.testing.scaffold import names_of


def new(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["new", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


TRAINING_RULES = {"engine step", "micro-batch", "ranks"}
"""Rules that train with DeepSpeed. tests/e2e/test_every_template.py trains every template instead."""


@pytest.mark.parametrize("kind", KINDS)
def test_generated_package_passes_the_kit(kind: str, tmp_path: Path) -> None:
    output = new("plugin", "my-part", "--kind", kind, "--out", tmp_path)
    folder = tmp_path / "my-part"
    assert "pip install -e ." in output
    file = folder / "my_part" / f"{kind}.py"
    assert "emplate" not in file.read_text().replace("my_part", "")
    for case in cases(f"{file}:MyPart"):
        if case.check.name not in TRAINING_RULES:
            assert case.passes() or case() is None, case
    recipe = load_recipe(folder / "my_part" / "recipes" / "my_part.yaml", plugins=[file], installed=False)
    assert kind == "exit" or any(spec.name == "my_part" for spec in recipe.specs.values())
    for source in folder.rglob("*.py"):
        compile(source.read_text(), str(source), "exec")


def test_package_can_have_several_kinds(tmp_path: Path) -> None:
    kinds = ("attention", "block", "readout")
    new("plugin", "my-part", *(item for kind in kinds for item in ("--kind", kind)), "--out", tmp_path)
    folder = tmp_path / "my-part"
    files = [folder / "my_part" / f"{kind}.py" for kind in kinds]
    recipe = load_recipe(folder / "my_part" / "recipes" / "my_part.yaml", plugins=files, installed=False)
    assert {kind for kind in kinds if any((s.kind, s.name) == (kind, "my_part") for s in recipe.specs.values())} == {
        *kinds
    }
    points = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {f"loopkit.{kind}": {"my_part": f"my_part.{kind}:MyPart"} for kind in kinds}.items() <= points.items()
    test = (folder / "tests" / "test_my_part.py").read_text()
    assert all(f'"my_part.{kind}:MyPart"' in test and f'PACKAGE / "{kind}.py"' in test for kind in kinds)
    compile(test, "test_my_part.py", "exec")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my part", "is not a package name"),
        ("-part", "is not a package name"),
        ("3part", "cannot import a module named '3part'"),
        ("class", "cannot import a module named 'class'"),
        ("json", "already exists"),
        ("pytest", "already exists"),
        ("loopkit-raw", "loopkit has a readout named 'raw'"),
    ],
)
def test_invalid_names_are_rejected(name: str, message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["new", "plugin", "--kind", "readout", "--out", str(tmp_path), "--", name])
    assert result.exit_code == 2
    assert message in result.output
    assert list(tmp_path.iterdir()) == []


def test_unknown_kind_and_existing_folder_are_rejected(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["new", "plugin", "mine", "--kind", "raedout", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "did you mean 'readout'" in result.output
    (tmp_path / "mine").mkdir()
    result = CliRunner().invoke(main, ["new", "plugin", "mine", "--kind", "readout", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "exists" in result.output
    assert list((tmp_path / "mine").iterdir()) == []


def test_names_follow_from_package_name() -> None:
    names = names_of("loopkit-Two.streams", ["core"])
    assert (names.module, names.component, names.cls) == ("loopkit_two_streams", "two_streams", "TwoStreams")


@pytest.mark.parametrize("parent", ["wikitext_44m_raw", "wikitext_129m_exit_weighted"])
def test_new_recipe_is_valid_with_and_without_comments(parent: str, tmp_path: Path) -> None:
    new("recipe", "mine", "--from", parent, "--out", tmp_path)
    file = tmp_path / "mine.yaml"
    original, copy = load_recipe(parent), load_recipe(file)
    same = {key: value for key, value in copy.values.items() if key not in ("extends", "description")}
    assert same == {key: original.values[key] for key in same}
    text = file.read_text()
    assert "#  width: " in text
    assert "# Channels of the state. (an integer > 0)" in text
    # uncommenting every value does not change the recipe
    body = "\n".join(
        line.removeprefix("#") if line[:2] != "# " or line[2:3] == " " else line for line in text.splitlines()
    )
    (tmp_path / "all.yaml").write_text(body)
    assert yaml.safe_load(body)["model"]["width"] == original.model.width
    assert {k: v for k, v in load_recipe(tmp_path / "all.yaml").values.items() if k in same} == same


def test_new_recipe_extends_file_with_plugins(tmp_path: Path) -> None:
    new("plugin", "my-part", "--kind", "readout", "--out", tmp_path)
    package = tmp_path / "my-part" / "my_part"
    parent, plugin = package / "recipes" / "my_part.yaml", package / "readout.py"
    new("recipe", "mine", "--from", parent, "--plugins", plugin, "--out", tmp_path / "here")
    assert load_recipe(tmp_path / "here" / "mine.yaml").model.readout.name == "my_part"
    result = CliRunner().invoke(main, ["new", "recipe", "mine", "--out", str(tmp_path / "here")])
    assert result.exit_code == 2
    assert "exists" in result.output


@pytest.mark.e2e
@pytest.mark.ci
def test_package_installs_and_passes_its_tests(tmp_path: Path, root: Path) -> None:
    new("plugin", "my-part", "--kind", "readout", "--out", tmp_path)
    folder, site = tmp_path / "my-part", tmp_path / "site"
    install = ["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", str(site), "."]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(root)])}

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run(*install)
    assert "my-part 0.1.0" in run("-m", "loopkit", "list", "readout")
    assert "no problem" in run("-m", "loopkit", "validate", "my_part")
    plugin = ("-p", "loopkit.testing.plugin", "--loopkit-component", "my_part.readout:MyPart")
    # without the rule that starts two ranks, which tests/e2e/test_plugin_guide.py runs from an installed package
    assert " passed" in run("-m", "pytest", *plugin, "tests", "-p", "no:cacheprovider", "-k", "not ranks")
