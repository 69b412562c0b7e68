"""Every template of ``loopkit new plugin`` becomes a package that is installed and trained for two steps."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopkit.registry import KINDS
from tests.e2e.commands import TINY, metrics, run, settings
from tests.e2e.plugin_site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.ci]

SMALL = (*TINY, "train.batch=4", "data.length=16", "evaluate.max_tokens=2000", "evaluate.depths=1-2")


@dataclass(frozen=True)
class Trained:
    """What became of a package.

    Args:
        run: Its run.
        code: Exit code of its training.
        output: What was printed.
    """

    run: Path
    code: int
    output: str


@pytest.fixture(scope="module")
def trained(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """One package of each kind, all installed and then trained in one process."""
    place = tmp_path_factory.mktemp("templates")
    for kind in KINDS:
        run("new", "plugin", f"my-{kind}", "--kind", kind, "--out", place / "packages")
    site = Site(place / "site" / "installed", root)
    site.install(*(place / "packages" / f"my-{kind}" for kind in KINDS))
    commands = [["loopkit", "train", f"my_{kind}", *settings(*SMALL), "--name", kind] for kind in KINDS]
    commands.append(["loopkit", "eval", "exit", "--exit", "my_exit", "--depths", "1-2"])
    results, _ = site.run([(place, words) for words in commands], plots=False)
    code, output = results.pop()
    packages = {kind: Trained(place / "runs" / kind, *result) for kind, result in zip(KINDS, results, strict=True)}
    # an exit is named when a run is evaluated, and no recipe has one
    packages["exit"] = Trained(packages["exit"].run, packages["exit"].code or code, packages["exit"].output + output)
    return packages


@pytest.mark.parametrize("kind", KINDS)
def test_template_is_installed_and_trained(kind: str, trained: dict[str, Trained]) -> None:
    package = trained[kind]
    assert package.code == 0, package.output
    lines = metrics(package.run)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["loss"]) for line in lines)
    components = json.loads((package.run / "provenance.json").read_text())["components"]
    assert kind == "exit" or components[f"{kind} my_{kind}"].startswith(f"my-{kind} 0.1.0 (sha256 ")
