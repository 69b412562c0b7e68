"""Commands that only read: output and errors."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.cli.main import COMMANDS
from loopkit.registry import KINDS


def run(*words: str, code: int = 0) -> str:
    """Run a command; return its output and errors."""
    result = CliRunner().invoke(main, list(words), prog_name="loopkit")
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_help_imports_only_click() -> None:
    code = """
import sys
from loopkit.cli import main
try:
    main(["--help"])
except SystemExit:
    print(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)), file=sys.stderr)
"""
    before = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    preloaded = {name.partition(".")[0] for name in before.stdout.split()}
    assert set(ast.literal_eval(done.stderr)) - preloaded == {"click", "loopkit"}
    assert all(command in done.stdout for command in COMMANDS)


def test_list_shows_kinds_components_and_recipes() -> None:
    assert all(kind in run("list") for kind in KINDS)
    assert "raw" in run("list", "readout")
    assert "wikitext_44m_raw" in run("list", "recipe")
    assert {row["name"] for row in json.loads(run("list", "placement", "--json"))} >= {"pre", "post"}
    assert "did you mean 'readout'" in run("list", "readuot", code=2)
    assert all(len(line) <= 80 for line in run("list", "placement").splitlines())


def test_show_describes_a_component() -> None:
    text = run("show", "rmsnorm")
    assert "norm/rmsnorm" in text
    assert "eps" in text
    assert "is the name of several components" in run("show", "none", code=2)
    assert json.loads(run("show", "readout/norm", "--json"))[0]["kind"] == "readout"


@pytest.mark.parametrize("kind", KINDS)
def test_show_prints_the_contract_of_a_kind(kind: str) -> None:
    text = run("show", kind)
    assert KINDS[kind].contract in text
    assert all(name in text for name in KINDS[kind].wiring)
    assert "components: " in text


def test_a_name_of_another_kind_is_explained() -> None:
    text = run("validate", "wikitext_44m_raw", "--set", "train.schedule=adamw", code=2)
    assert "'adamw' is the name of another kind: optimizer" in text


def test_a_missing_recipe_has_no_line() -> None:
    assert run("show", "absent.yaml", code=2).startswith("absent.yaml: there is no such file")


def test_show_prints_values_and_origins() -> None:
    assert "width: 512" in run("show", "wikitext_44m_raw")
    text = run("show", "wikitext_44m_raw", "--origin", "--set", "seed=3", "--profile", "smoke")
    assert "seed: 3" in text
    assert "--set seed=3" in text
    assert "(profile smoke)" in text
    assert "default" in text
    assert json.loads(run("show", "wikitext_44m_raw", "--json"))["model"]["width"] == 512


def test_validate_reports_all_problems(tmp_path: Path) -> None:
    assert "2 recipes, no problems" in run("validate", "wikitext_44m_raw", "wikitext_44m_raw")
    bad = tmp_path / "bad.yaml"
    bad.write_text("loopkit: 2\nextends: wikitext_44m_raw\nmodle: {}\n")
    text = run("validate", str(bad), code=2)
    assert "bad.yaml:3: modle: the recipe has no option 'modle'" in text
    assert "did you mean 'model'" in text
    assert "1 problem" in text
    report = json.loads(run("validate", str(bad), "--json", code=2))
    assert report["problems"][0]["line"] == 3
    assert "no profile" in run("validate", "wikitext_44m_raw", "--profile", "none", code=2)


def test_schema_is_written(tmp_path: Path) -> None:
    out = tmp_path / "schema.json"
    assert "wrote" in run("schema", "--out", str(out))
    assert json.loads(out.read_text())["required"] == ["loopkit"]


def test_head_does_not_cause_an_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m loopkit show wikitext_44m_raw | head -n 1", shell=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "loopkit: 2"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["nothing", "no/such/recipe.yaml", ""])
def test_a_missing_recipe_is_a_user_error(word: str) -> None:
    assert run("show", word, code=2)
