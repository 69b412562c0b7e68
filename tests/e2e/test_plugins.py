"""The example packages: installed, they are there; removed, they are not; and no line of loopkit names them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.commands import metrics
from tests.e2e.plugin_site import Site

pytestmark = pytest.mark.e2e

PACKAGES = {
    "loopkit-lora": ("wikitext_lora", ["block/lora"]),
    "loopkit-loopformer": (
        "wikitext_loopformer",
        ["block/loopformer_block", "schedule/shortcut", "regularizer/shortcut_consistency"],
    ),
    "loopkit-mor": ("wikitext_mor", ["core/token_routed", "regularizer/router_balance", "regularizer/router_z"]),
}
"""Package, its recipe, its components."""

EACH = pytest.mark.parametrize("package", PACKAGES)


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """All packages, installed as a user would."""
    found = Site(tmp_path_factory.mktemp("site") / "installed", root)
    found.install(*(root / "plugins" / package for package in PACKAGES))
    return found


def outputs_of(site: Site, cwd: Path, *commands: str) -> dict[str, str]:
    """The output of each of several commands, all of which succeed."""
    results = site.several([command.split() for command in commands], cwd)
    assert [code for code, _ in results] == [0] * len(commands), results
    return {command: output for command, (_, output) in zip(commands, results, strict=True)}


def listings(package: str) -> list[str]:
    """The commands that list, show, check and plan what a package has."""
    recipe, components = PACKAGES[package]
    lists = [f"list {name.partition('/')[0]} --json" for name in components]
    shows = [f"show {name}" for name in components]
    return [*lists, *shows, f"validate {recipe}", f"plan {recipe} --profile smoke --json"]


def trainings(package: str) -> list[str]:
    """The commands that train a package's recipe and measure it."""
    recipe = PACKAGES[package][0]
    train = f"train {recipe} --profile smoke --set train.steps=2 --name {package}"
    measure, audit = f"eval runs/{package} --depths 1,2 --json", f"audit runs/{package} --json"
    return [train, measure, audit, f"audit {recipe} --profile smoke --json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands of all packages run."""
    return tmp_path_factory.mktemp("plugins")


@pytest.fixture(scope="module")
def output(site: Site, folder: Path) -> dict[str, str]:
    """What the commands of all packages printed, run in one process."""
    commands = ["schema", "list recipe", "doctor"]
    for package in PACKAGES:
        commands += [*listings(package), *trainings(package)]
    return outputs_of(site, folder, *dict.fromkeys(commands))


def test_every_package_is_tested(root: Path) -> None:
    assert {path.parent.name for path in (root / "plugins").glob("*/pyproject.toml")} == set(PACKAGES)


def test_loopkit_contains_no_package_name(root: Path) -> None:
    names = [name.partition("/")[2] for _, found in PACKAGES.values() for name in found]
    words = re.compile("|".join(rf"\b{name}\b" for name in [*names, *(p.replace("-", "[-_]") for p in PACKAGES)]))
    lines = {
        f"{path}: {line}"
        for path in [*(root / "loopkit").rglob("*.py"), *(root / "recipes").rglob("*.yaml")]
        for line in path.read_text().splitlines()
        if re.search(r"[\"']lora[\"']" if "lora" in line.lower() else words, line)
    }
    assert lines == set()


@EACH
def test_installed_package_is_in_every_listing(output: dict[str, str], package: str) -> None:
    recipe, components = PACKAGES[package]
    for component in components:
        kind, _, name = component.partition("/")
        rows = json.loads(output[f"list {kind} --json"])
        assert [row["from"] for row in rows if row["name"] == name] == [f"{package} 0.1.0"]
        assert f"from: {package} 0.1.0" in output[f"show {component}"]
        assert f'"{name}"' in output["schema"]
    assert recipe in output["list recipe"]
    assert "no problem" in output[f"validate {recipe}"]
    assert package in output["doctor"]
    assert json.loads(output[f"plan {recipe} --profile smoke --json"])["recipe"] == f"{recipe}-smoke"


@EACH
def test_package_recipe_trains_and_evaluates(output: dict[str, str], folder: Path, package: str) -> None:
    components = PACKAGES[package][1]
    _, measure, audit, again = trainings(package)
    run = folder / "runs" / package
    assert [line["step"] for line in metrics(run)] == [1, 2]
    record = json.loads((run / "provenance.json").read_text())["components"]
    assert {record[name.replace("/", " ")].partition(" (sha256 ")[0] for name in components} == {f"{package} 0.1.0"}
    found = json.loads(output[measure])
    assert [row["depth"] for row in found["depths"]] == [1, 2]
    assert found["core_calls"] == found["batches"] * (3 if package == "loopkit-loopformer" else 2)
    assert json.loads(output[audit])["scale"]["verdict"]
    assert json.loads(output[again])["scale"]["verdict"]


@pytest.mark.usefixtures("output")
def test_depths_beyond_parameters_are_rejected(site: Site, folder: Path) -> None:
    """LoRA has parameters for the four loops that training runs, and no more."""
    ((code, text),) = site.several([["eval", "runs/loopkit-lora", "--depths", "1-5"]], folder)
    assert code == 2
    assert "use depths up to 4" in text


@pytest.mark.ci
def test_own_tests_pass_where_installed(site: Site, root: Path) -> None:
    """One process runs the tests of one package after the other, which saves the start of three pairs of ranks."""
    words = ["pytest", "-p", "no:cacheprovider", "tests"]
    results, text = site.run([(root / "plugins" / package, words) for package in PACKAGES])
    assert [code for code, _ in results] == [0] * len(PACKAGES), text
    assert text.count(" passed") == len(PACKAGES)


def test_removed_package_is_gone(root: Path, tmp_path: Path) -> None:
    package = "loopkit-mor"
    site = Site(tmp_path / "installed", root)
    site.install(root / "plugins" / package)
    lists = ("list core", "schema", "list recipe")
    assert all("token_routed" in text or "wikitext_mor" in text for text in outputs_of(site, tmp_path, *lists).values())
    site.remove(package)
    commands = ["show core/token_routed", "validate wikitext_mor", "plan wikitext_mor"]
    results = site.several([command.split() for command in (*lists, *commands)], tmp_path)
    listed, refused = results[: len(lists)], results[len(lists) :]
    assert not any("token_routed" in text or "wikitext_mor" in text or code for code, text in listed)
    assert all(code == 2 and "is called" in text for code, text in refused), refused


def test_no_plugins_omits_packages(site: Site, tmp_path: Path) -> None:
    commands = [["list", "core", "--no-plugins"], ["validate", "wikitext_mor", "--no-plugins"]]
    (listed, text), (checked, _) = site.several(commands, tmp_path)
    assert listed == 0
    assert "token_routed" not in text
    assert checked == 2
