"""The example packages: installed, they are there; removed, they are not; and no line of loopkit names them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


def all_said(site: Site, cwd: Path, *commands: str) -> dict[str, str]:
    """What each of several commands printed; all of them succeed."""
    results = site.several([command.split() for command in commands], cwd)
    assert [code for code, _ in results] == [0] * len(commands), results
    return {command: output for command, (_, output) in zip(commands, results, strict=True)}


def test_every_package_is_tested(root: Path) -> None:
    assert {path.parent.name for path in (root / "plugins").glob("*/pyproject.toml")} == set(PACKAGES)


def test_loopkit_names_none_of_them(root: Path) -> None:
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
def test_an_installed_package_is_listed_shown_checked_and_planned(site: Site, package: str, tmp_path: Path) -> None:
    recipe, components = PACKAGES[package]
    lists = {name: f"list {name.partition('/')[0]} --json" for name in components}
    shows = {name: f"show {name}" for name in components}
    plan = f"plan {recipe} --profile smoke --json"
    rest = ("schema", "list recipe", f"validate {recipe}", "doctor", plan)
    output = all_said(site, tmp_path, *lists.values(), *shows.values(), *rest)
    for component in components:
        name = component.partition("/")[2]
        rows = json.loads(output[lists[component]])
        assert [row["from"] for row in rows if row["name"] == name] == [f"{package} 0.1.0"]
        assert f"from: {package} 0.1.0" in output[shows[component]]
        assert f'"{name}"' in output["schema"]
    assert recipe in output["list recipe"]
    assert "no problem" in output[f"validate {recipe}"]
    assert package in output["doctor"]
    assert json.loads(output[plan])["recipe"] == f"{recipe}-smoke"


@EACH
def test_it_trains_and_is_measured_from_its_run_folder(site: Site, package: str, tmp_path: Path) -> None:
    recipe, components = PACKAGES[package]
    train = f"train {recipe} --profile smoke --set train.steps=2 --name run"
    measure, audit = "eval runs/run --depths 1,2 --json", "audit runs/run --json"
    again = f"audit {recipe} --profile smoke --json"
    output = all_said(site, tmp_path, train, measure, audit, again)
    lines = metrics(tmp_path / "runs/run")
    assert [line["step"] for line in lines] == [1, 2]
    record = json.loads((tmp_path / "runs/run/provenance.json").read_text())["components"]
    assert {record[name.replace("/", " ")].partition(" (sha256 ")[0] for name in components} == {f"{package} 0.1.0"}
    found = json.loads(output[measure])
    assert [row["depth"] for row in found["depths"]] == [1, 2]
    assert found["core_calls"] == found["batches"] * (3 if package == "loopkit-loopformer" else 2)
    assert json.loads(output[audit])["scale"]["verdict"]
    assert json.loads(output[again])["scale"]["verdict"]
    if package == "loopkit-lora":  # it has parameters for the four loops that training runs, and no more
        done = site.loopkit("eval", "runs/run", "--depths", "1-5", cwd=tmp_path)
        assert done.returncode == 2
        assert "ask for depths up to 4" in done.stderr


@EACH
def test_its_own_tests_pass_where_it_is_installed(site: Site, root: Path, package: str) -> None:
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        words, cwd=root / "plugins" / package, env=site.env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_what_is_removed_is_gone(root: Path, tmp_path: Path) -> None:
    package = "loopkit-mor"
    site = Site(tmp_path / "installed", root)
    site.install(root / "plugins" / package)
    lists = ("list core", "schema", "list recipe")
    assert all("token_routed" in text or "wikitext_mor" in text for text in all_said(site, tmp_path, *lists).values())
    site.remove(package)
    assert not any(
        "token_routed" in text or "wikitext_mor" in text for text in all_said(site, tmp_path, *lists).values()
    )
    refused = site.several(
        [["show", "core/token_routed"], ["validate", "wikitext_mor"], ["plan", "wikitext_mor"]], tmp_path
    )
    assert all(code == 2 and "is called" in text for code, text in refused), refused


def test_no_plugins_leaves_them_out(site: Site, tmp_path: Path) -> None:
    commands = [["list", "core", "--no-plugins"], ["validate", "wikitext_mor", "--no-plugins"]]
    (listed, text), (checked, _) = site.several(commands, tmp_path)
    assert listed == 0
    assert "token_routed" not in text
    assert checked == 2
