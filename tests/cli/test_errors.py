"""Errors of commands: message, traceback and exit code of each type of exception."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from loopkit.cli.main import Commands, main
from loopkit.errors import FileError, UserError, file_errors
from loopkit.exit_codes import ExitCode
from loopkit.registry.loading import import_file

PACKAGE = Path(__file__).resolve().parents[2] / "loopkit"
GUIDE = PACKAGE.parent / "docs" / "guides" / "surviving_faults.md"


def run_raising(error: BaseException, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    """The result of a command that raises."""

    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(Commands, "get_command", lambda self, ctx, name: failing)
    return CliRunner().invoke(main, [*words, "plan"])


def test_a_user_error_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    error = UserError("data.length: 0 is too short; use 1 or more")
    error.add_note("while building data")
    result = run_raising(error, monkeypatch)
    assert result.exit_code == ExitCode.USER_ERROR
    assert result.stderr == "error: data.length: 0 is too short; use 1 or more\n  while building data\n"
    assert run_raising(error, monkeypatch, "--traceback").exception is error


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError("x"), KeyError("x"), IndexError("x"), LookupError("x"), TypeError("x"), RuntimeError("x")),
        *(OSError("x"), FileNotFoundError("x"), ConnectionError("x"), BrokenPipeError("x"), NotImplementedError("x")),
        *(
            AssertionError("x"),
            ZeroDivisionError("x"),
            RecursionError("x"),
            UnicodeDecodeError("utf-8", b"x", 0, 1, ""),
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_bug_has_traceback_version_and_report_hint(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopkit.error_report.registered_modules", list)  # other tests register components of their own
    result = run_raising(error, monkeypatch)
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert result.stderr.count("\nerror: ") == 1
    assert re.search(r"this is a bug in loopkit \S+: please report it .* `loopkit doctor`$", result.stderr.strip())


def test_exit_code_of_an_exception_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from loopkit.training.errors import NotFinite

    result = run_raising(NotFinite(3, "the loss is nan", None), monkeypatch)
    assert result.exit_code == ExitCode.UNHEALTHY
    assert result.stderr.startswith("error: step 3: the loss is nan")


def test_ctrl_c_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_raising(KeyboardInterrupt(), monkeypatch).exit_code == ExitCode.INTERRUPTED


PLUGIN = """
from loopkit.components.gate import Gate
from loopkit.registry import register


@register("gate", "mine")
class Mine(Gate):
    def forward(self, s, read, step):
        raise ZeroDivisionError("something broke")


@register("gate", "empty")
class Empty(Gate):
    pass
"""


@pytest.mark.parametrize(("name", "place"), [("Mine", r"mine\.py:9"), ("Empty", r"loopkit/components/gate\.py:\d+")])
def test_a_bug_of_a_plugin_names_the_plugin(
    name: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    gate = getattr(import_file(tmp_path / "mine.py"), name)()
    with pytest.raises((ZeroDivisionError, NotImplementedError)) as caught:
        gate(None, None, None)
    result = run_raising(caught.value, monkeypatch)
    assert result.exit_code == ExitCode.FAILED
    assert "Traceback" in result.stderr
    assert re.search(rf"raised in the plugin mine \(\S*{place}\), used by loopkit", result.stderr)


def test_user_errors_are_raised_as_such() -> None:
    """No module raises a built-in exception for files, names or connections."""
    kinds = (OSError, LookupError, ImportError)
    offenses = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                kind = getattr(builtins, node.exc.func.id, None)
                if isinstance(kind, type) and issubclass(kind, kinds):
                    offenses.append(f"{file}:{node.lineno}")
    assert offenses == []


@pytest.mark.parametrize(
    ("path", "text", "remedy"),
    [("absent", "no such file or directory", "check the path"), ("", "is a directory", "name a file")],
)
def test_system_errors_name_file_and_remedy(path: str, text: str, remedy: str, tmp_path: Path) -> None:
    message = rf"^{tmp_path / path} cannot be read: {text}; {remedy}$"
    with pytest.raises(FileError, match=message) as caught, file_errors(tmp_path / path, "read"):
        (tmp_path / path).read_text()
    assert caught.value.errno


@pytest.mark.parametrize(
    "words",
    [
        ["schema", "--out", "{blocked}/schema.json"],
        ["new", "recipe", "mine", "--out", "{blocked}/new"],
        ["new", "plugin", "my-readout", "--kind", "readout", "--out", "{blocked}/new"],
        ["list", "readout", "--plugins", "{blocked}/plugin.py"],
        ["validate", "{blocked}/recipe.yaml"],
        ["import", "{blocked}/model"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_unusable_path_is_a_user_error(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, [word.format(blocked=tmp_path / "file") for word in words])
    assert result.exit_code == ExitCode.USER_ERROR, result.output
    assert str(tmp_path / "file") in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", ["show wikitext_44m_raw --origin", "list", "schema", "show readout/norm"])
def test_a_closed_pipe_is_silent(words: str) -> None:
    result = subprocess.run(
        f"{sys.executable} -m loopkit {words} | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""
    assert result.stdout.strip() in ("0", "141")


@pytest.mark.parametrize("words", [["trian"], ["new", "plugn"]])
def test_a_misspelt_command_gets_a_suggestion(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == ExitCode.USER_ERROR
    assert f"did you mean '{ {'trian': 'train', 'plugn': 'plugin'}[words[-1]] }'?" in result.stderr


def test_exit_codes_come_from_one_table() -> None:
    """Help and guide list the codes of the table; no module exits with a literal number."""
    help_text = CliRunner().invoke(main, ["train", "--help"], prog_name="loopkit").stdout
    table = help_text.partition("Exit codes:")[2].partition("Options:")[0]
    assert [int(code) for code in re.findall(r"^ {4}(\d+) ", table, re.M)] == [code.value for code in ExitCode]
    assert all(code.meaning in " ".join(table.split()) for code in ExitCode)
    rows = GUIDE.read_text().partition("exit code |")[2].partition("\n\n")[0]
    assert {
        int(code) for code in re.findall(r"\d+", " ".join(row.split("|")[-2] for row in rows.splitlines()[2:]))
    } <= {code.value for code in ExitCode}
    exits = re.compile(r"(sys\.exit|os\._exit|SystemExit)\(\d+\)")
    assert [str(file) for file in PACKAGE.rglob("*.py") if exits.search(file.read_text())] == []
