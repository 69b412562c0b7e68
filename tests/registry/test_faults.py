"""Each fault of a plugin: its own message with file and line, and no other command is any the worse for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from loopkit.cli.main import Commands, main
from loopkit.registry.catalog import Catalog, builtin_offers, catalog
from loopkit.registry.module_files import module_file, module_folder
from loopkit.registry.plugins import installed_offers
from loopkit.registry.spec import Spec
from tests.registry.test_catalog import SOURCE, install

GOOD = SOURCE.format(name="faulty")
FAULTS: dict[str, tuple[str, str]] = {
    "syntax error": (GOOD + "def broken(:\n", r"faulty\.py:11: syntax error"),
    "missing annotation": (
        GOOD.replace("    def forward", "    def __init__(self, *, eps=1.0): ...\n    def forward"),
        r"faulty\.py:9: option 'eps' has no annotation",
    ),
    "catch-all": (
        GOOD.replace("    def forward", "    def __init__(self, **options: int): ...\n    def forward"),
        r"faulty\.py:9: Mine: 'options' hides options; name each one",
    ),
    "duplicate": (GOOD + GOOD, r"faulty\.py:17: readout 'faulty' is registered twice in this file, first at line 7"),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    catalog.cache_clear()
    yield tmp_path
    catalog.cache_clear()


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_package_causes_one_warning(site: Path, fault: str) -> None:
    source, message = FAULTS[fault]
    install(site, "faulty", "faulty", source)
    done = run("list", "readout")
    assert done.exit_code == 0
    assert done.stderr.count("warning:") == 1
    assert re.search(rf"warning: plugin faulty 1\.2 is broken: readout 'faulty': .*{message}", done.stderr)
    assert "cannot be used" in " ".join(done.stdout.split())
    assert run("validate", "wikitext_44m_raw").exit_code == 0
    assert run("list", "readout", "--no-plugins").stderr == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_package_in_use_names_its_line(site: Path, fault: str) -> None:
    source, message = FAULTS[fault]
    install(site, "faulty", "faulty", source)
    done = run("validate", "wikitext_44m_raw", "--set", "model.readout=faulty")
    assert done.exit_code == 2
    assert re.search(message, done.stderr)
    assert "loopkit doctor shows every plugin" in done.stderr


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_file_names_its_line(tmp_path: Path, fault: str) -> None:
    source, message = FAULTS[fault]
    file = tmp_path / "faulty.py"
    file.write_text(source)
    for words in (["list", "readout"], ["validate", "wikitext_44m_raw"], ["show", "wikitext_44m_raw"], ["schema"]):
        done = run(*words, "--plugins", str(file))
        assert done.exit_code == 2, words
        assert re.search(message, done.stderr)
        assert "Traceback" not in done.stderr


def test_unusable_plugin_file_names_the_recipe_line(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTS["syntax error"][0])
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("loopkit: 2\nextends: wikitext_44m_raw\nplugins: [./faulty.py, ./gone.py]\n")
    done = run("validate", str(recipe))
    assert done.exit_code == 2
    assert f"{recipe}:3: plugins: {tmp_path / 'faulty.py'}:11: syntax error" in done.stderr
    assert f"{recipe}:3: plugins: {tmp_path / 'gone.py'}: there is no such file" in done.stderr


@pytest.mark.parametrize("where", ["package", "file"])
def test_import_error_names_the_raising_line(site: Path, where: str) -> None:
    source = GOOD.replace("from __future__ import annotations", "from __future__ import annotations\nimport not_there")
    install(site, "needy", "faulty", source)
    files = [site / "needy.py"] if where == "file" else []
    offers = () if where == "file" else tuple(installed_offers())
    schema = Catalog((*builtin_offers(), *offers)).with_files(files).get("readout", "faulty")
    with pytest.raises(ModuleNotFoundError, match="not_there") as caught:
        schema.load()
    assert f"while importing readout 'faulty' from {site / 'needy.py'}:3" in caught.value.__notes__
    assert run("validate", "wikitext_44m_raw", "--set", "model.readout=faulty").exit_code == 0  # reading runs nothing


def test_import_error_shows_traceback_and_plugin(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "needy_b", "faulty", GOOD + "\nraise RuntimeError('no licence')\n")

    @click.command()
    def building() -> None:
        Spec("readout", "faulty").build(width=4)

    monkeypatch.setattr(Commands, "get_command", lambda self, ctx, name: building)
    done = run("plan")
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert "error: RuntimeError: no licence" in done.stderr
    assert f"raised in the plugin readout 'faulty' from {site / 'needy_b.py'}:12" in done.stderr
    assert isinstance(run("--traceback", "plan").exception, RuntimeError)


def test_name_of_a_builtin_is_reported_with_line(site: Path) -> None:
    install(site, "mine_x", "raw", SOURCE.format(name="raw"))
    done = run("validate", "wikitext_44m_raw")
    assert done.exit_code == 0
    message = f"readout 'raw' is loopkit's own; the plugin's is called mine_x:raw ({site / 'mine_x.py'}:7)"
    assert done.stderr.count(message) == 1
    assert "mine_x:raw" in run("doctor", "--json").stdout


def test_doctor_shows_the_state_of_every_plugin(site: Path) -> None:
    install(site, "good_a", "same", SOURCE.format(name="same"))
    install(site, "good_b", "same", SOURCE.format(name="same"))
    install(site, "needy_c", "needy", SOURCE.format(name="needy") + "import not_there\n")
    install(site, "torn", "torn", "def broken(:")
    local = site / "local_file.py"
    local.write_text("def broken(:")
    import json

    done = run("doctor", "--json", "--plugins", str(local))
    assert done.exit_code == 0, done.output
    rows = {(row["component"], row["from"]): row for row in json.loads(done.stdout)["plugins"]}
    state = rows["readout/same", "good_a 1.2"]["state"]
    assert state == "ready as good_a:same, because good_b 1.2 has one of the same name"
    assert rows["readout/needy", "needy_c 1.2"]["state"].startswith("cannot be imported: ModuleNotFoundError")
    assert "torn.py:1: syntax error" in rows["readout/torn", "torn 1.2"]["state"]
    assert "local_file.py:1: syntax error" in rows["file", str(local)]["state"]
    assert len(rows["readout/same", "good_a 1.2"]["sha256"]) == 12


def test_entry_point_without_class_is_a_problem(site: Path) -> None:
    install(site, "odd", "odd", GOOD)
    (site / "odd-1.2.dist-info" / "entry_points.txt").write_text("[loopkit.readout]\nodd = odd Mine:\n")
    (offer,) = (offer for offer in installed_offers() if offer.name == "odd")
    assert offer.problem == "its entry point odd = odd Mine: is not written module:Class"


def test_editable_install_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.machinery
    import sys

    package = tmp_path / "elsewhere" / "far_away"
    (package / "recipes").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit")
    (package / "part.py").write_text("")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            if name != "far_away":
                return None
            return importlib.machinery.PathFinder.find_spec(name, [str(package.parent)])

    assert module_file("far_away.part") is None
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert module_file("far_away.part") == package / "part.py"
    assert module_folder("far_away.recipes") == package / "recipes"  # it needs no __init__.py
    assert module_folder("far_away.nothing") is None


def test_file_that_is_also_installed_counts_once(site: Path) -> None:
    install(site, "both", "both", SOURCE.format(name="both"))
    components = Catalog((*builtin_offers(), *installed_offers())).with_files([site / "both.py", site / "both.py"])
    assert str(components.get("readout", "both").provider) == "both 1.2"


def test_plugin_files_are_in_the_resolved_recipe(tmp_path: Path) -> None:
    from loopkit.recipe import load_recipe

    file = tmp_path / "local.py"
    file.write_text(SOURCE.format(name="local"))
    loaded = load_recipe("wikitext_44m_raw", overrides=["model.readout=local"], plugins=[file])
    assert loaded.values["plugins"] == [str(file)]
    again = tmp_path / "resolved.yaml"
    again.write_text(loaded.to_yaml())
    assert load_recipe(again).model.readout.schema.file == file
