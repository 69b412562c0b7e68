"""The kit under pytest: what is run, what is said, and what is refused."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
LOCAL = '''
from loopkit.components.lr import LearningRate
from loopkit.registry import register

@register("lr", "local")
class Local(LearningRate):
    """A rate that needs a word."""
    def __init__(self, *, word: str, peak: float = 1e-3) -> None:
        """x"""
        self.word, self.peak = word, peak
    def at(self, step: int, num_steps: int) -> float:
        return self.peak * (2 if self.word == "twice" else 1)
'''


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "loopkit.testing.plugin", "-p", "no:hypothesispytest", *words)


def test_without_paths_the_component_alone_is_checked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): assert False")
    done = run(pytester, "--loopkit-component", "lr/cosine", "-v")
    done.assert_outcomes(passed=7)
    done.stdout.fnmatch_lines(["lr/cosine::pure PASSED*"])
    assert done.ret == 0
    both = run(pytester, "--loopkit-component", "lr/cosine", ".")
    both.assert_outcomes(passed=7, failed=1)


def test_a_violation_is_said_in_words_without_a_traceback(pytester: pytest.Pytester) -> None:
    file = pytester.path / "local.py"
    file.write_text(LOCAL)
    done = run(pytester, "--loopkit-component", "local.py:Local", "--loopkit-options", '{"word": "twice"}')
    done.stdout.fnmatch_lines(
        ["lr 'local' (*local.py:6): it goes above its peak", "  seen: 0.002 above 0.001", "  rule: *"]
    )
    assert "Traceback" not in done.stdout.str()
    done.assert_outcomes(passed=3, failed=2, skipped=2)


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
def test_a_faulty_module_is_one_usage_error(fault: str, place: str, pytester: pytest.Pytester) -> None:
    source, message = FAULTS[fault]
    (pytester.path / "faulty.py").write_text(source)
    sys.modules.pop("faulty", None)
    importlib.invalidate_caches()
    done = run(pytester, "--loopkit-component", place)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    text = f"{done.stdout.str()}\n{done.stderr.str()}"
    assert "INTERNALERROR" not in text
    (error,) = (line for line in text.splitlines() if line.startswith("ERROR: "))
    assert f"--loopkit-component {place}: " in error
    assert message in error


def test_plugin_files_are_found_by_name(pytester: pytest.Pytester) -> None:
    (pytester.path / "local.py").write_text(LOCAL)
    words = ["--loopkit-component", "lr/local", "--loopkit-options", '{"word": "once"}']
    assert "no lr is called 'local'" in run(pytester, *words).stderr.str()
    run(pytester, *words, "--loopkit-plugins", "local.py").assert_outcomes(passed=6, failed=1)


def test_a_required_option_that_can_be_anything_must_be_given(pytester: pytest.Pytester) -> None:
    (pytester.path / "local.py").write_text(LOCAL)
    done = run(pytester, "--loopkit-component", "local.py:Local")
    done.stdout.fnmatch_lines(["*option 'word' of lr 'local' is required and can be anything; give it with*"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--loopkit-component", "lr/nothing"], "no lr is called 'nothing'"),
        (["--loopkit-component", "norm"], "names several components: carry/norm"),
        (["--loopkit-component", "not_there:X"], "no module is called not_there"),
        (["--loopkit-component", "json:JSONDecoder"], "carries no @register"),
        (["--loopkit-component", "json:Nothing"], "json has no class Nothing"),
        (["--loopkit-component", "gone.py:X"], "there is no file gone.py"),
        (["--loopkit-component", "lr/cosine", "--loopkit-options", "{"], "not JSON"),
        (["--loopkit-component", "lr/cosine", "--loopkit-options", "[1]"], "write a map"),
        (["--loopkit-component", "lr/cosine", "--loopkit-options", '{"x": 1}'], "has no option x; options: peak"),
        (["--loopkit-component", "lr/cosine", "--loopkit-model", '{"x": 1}'], "no kind is called so"),
        (["--loopkit-options", "{}"], "belong to a --loopkit-component"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_line(pytester: pytest.Pytester, words: list[str], said: str) -> None:
    done = run(pytester, *words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert said in done.stdout.str() + done.stderr.str()


def test_pytest_starts_without_torch_where_the_option_is_not_used() -> None:
    code = "import loopkit.testing.plugin, sys; assert not {'torch', 'pydantic', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_entry_point_and_the_module_are_one_plugin(root: Path) -> None:
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"loopkit.testing.plugin": "loopkit.testing.plugin"}
