"""The kit as a pytest plugin: collection, reports and usage errors."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import loopkit.testing.checks  # noqa: F401  pytester unloads what a run imports, and rules register once

pytest_plugins = ["pytester"]
LOCAL = '''
from loopkit.components.lr import LearningRate
from loopkit.registry import register

@register("lr", "local")
class Local(LearningRate):
    """A learning rate that needs a word."""
    def __init__(self, *, word: str, peak: float = 1e-3) -> None:
        """x"""
        self.word, self.peak = word, peak
    def at(self, step: int, num_steps: int) -> float:
        return self.peak * (2 if self.word == "twice" else 1)
'''


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "loopkit.testing.plugin", "-p", "no:hypothesispytest", *arguments)


def test_only_the_component_runs_without_paths(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): assert False")
    result = run(pytester, "--loopkit-component", "lr/cosine", "-v")
    result.assert_outcomes(passed=7)
    result.stdout.fnmatch_lines(["lr/cosine::pure PASSED*"])
    assert result.ret == 0
    both = run(pytester, "--loopkit-component", "lr/cosine", ".")
    both.assert_outcomes(passed=7, failed=1)


def test_violation_is_reported_without_traceback(pytester: pytest.Pytester) -> None:
    file = pytester.path / "local.py"
    file.write_text(LOCAL)
    result = run(pytester, "--loopkit-component", "local.py:Local", "--loopkit-options", '{"word": "twice"}')
    result.stdout.fnmatch_lines(
        ["lr 'local' (*local.py:6): it exceeds its peak", "  seen: 0.002 above 0.001", "  rule: *"]
    )
    assert "Traceback" not in result.stdout.str()
    result.assert_outcomes(passed=3, failed=2, skipped=2)


FAULTS = {
    "no annotation": (LOCAL.replace("peak: float = 1e-3", "peak=1e-3"), "'peak' has no annotation"),
    "unknown wiring": (
        LOCAL.replace("self, *, word", "self, width: int, *, word"),
        "'width' is not wiring of kind 'lr'",
    ),
    "syntax error": (LOCAL + "def broken(:", "yntax"),
    "missing module": ("import not_there\n" + LOCAL, "cannot be imported: No module named 'not_there' ("),
    "raises": (LOCAL + "1 / 0", "cannot be imported: ZeroDivisionError: division by zero ("),
}


@pytest.mark.parametrize("place", ["faulty.py:Local", "faulty:Local"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_module_is_one_usage_error(fault: str, place: str, pytester: pytest.Pytester) -> None:
    source, message = FAULTS[fault]
    (pytester.path / "faulty.py").write_text(source)
    sys.modules.pop("faulty", None)
    importlib.invalidate_caches()
    result = run(pytester, "--loopkit-component", place)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = f"{result.stdout.str()}\n{result.stderr.str()}"
    assert "INTERNALERROR" not in text
    (error,) = (line for line in text.splitlines() if line.startswith("ERROR: "))
    assert f"--loopkit-component {place}: " in error
    assert message in error


def test_component_of_plugin_file_is_found_by_name(pytester: pytest.Pytester) -> None:
    (pytester.path / "local.py").write_text(LOCAL)
    arguments = ["--loopkit-component", "lr/local", "--loopkit-options", '{"word": "once"}']
    assert "no lr is called 'local'" in run(pytester, *arguments).stderr.str()
    run(pytester, *arguments, "--loopkit-plugins", "local.py").assert_outcomes(passed=6, failed=1)


def test_option_that_cannot_be_guessed_must_be_set(pytester: pytest.Pytester) -> None:
    (pytester.path / "local.py").write_text(LOCAL)
    result = run(pytester, "--loopkit-component", "local.py:Local")
    result.stdout.fnmatch_lines(["*option 'word' of lr 'local' is required and accepts any value; set it with*"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loopkit-component", "lr/nothing"], "no lr is called 'nothing'"),
        (["--loopkit-component", "norm"], "names several components: carry/norm"),
        (["--loopkit-component", "not_there:X"], "no module named not_there"),
        (["--loopkit-component", "json:JSONDecoder"], "has no @register"),
        (["--loopkit-component", "json:Nothing"], "json has no class Nothing"),
        (["--loopkit-component", "gone.py:X"], "file not found: gone.py"),
        (["--loopkit-component", "lr/cosine", "--loopkit-options", "{"], "is not a JSON object; write it as"),
        (["--loopkit-component", "lr/cosine", "--loopkit-options", "[1]"], "is not a JSON object"),
        (["--loopkit-component", "lr/cosine", "--loopkit-options", '{"x": 1}'], "has no option x; options: peak"),
        (["--loopkit-component", "lr/cosine", "--loopkit-model", '{"x": 1}'], "unknown kind x; kinds: "),
        (["--loopkit-options", "{}"], "need --loopkit-component"),
    ],
)
def test_invalid_usage_is_a_one_line_error(pytester: pytest.Pytester, arguments: list[str], message: str) -> None:
    result = run(pytester, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stdout.str() + result.stderr.str()


def test_pytest_starts_without_torch() -> None:
    code = "import loopkit.testing.plugin, sys; assert not {'torch', 'pydantic', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_entry_point_is_the_plugin_module(root: Path) -> None:
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"loopkit.testing.plugin": "loopkit.testing.plugin"}
