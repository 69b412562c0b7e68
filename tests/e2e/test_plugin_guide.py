"""The guide to plugins, followed to the letter: its files written, its commands run, from an empty folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.e2e import documented
from tests.e2e.plugin_site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.ci]


@pytest.fixture(scope="module")
def followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has followed the guide from its first line to its last."""
    place = tmp_path_factory.mktemp("guide")
    site = Site(place / "site" / "installed", root)
    waiting: list[str] = []

    def run_waiting() -> None:
        """Run the commands since the last call in one process, because starting costs most."""
        results, text = site.run((place, program(command)) for command in waiting)
        for command, (code, output) in zip(waiting, results, strict=True):
            assert code == 0, f"{command}\n{output}\n{text}"
            assert "Traceback" not in output, f"{command}\n{output}"
        waiting.clear()

    for block in documented.blocks(root / "docs/guides/writing_a_plugin.md"):
        if block.language == "sh":
            assert "loopkit[test]" in block.text  # the environment of this test
        elif block.language not in ("bash", "text"):  # text is shown, not written
            assert block.file, f"the guide does not say where this belongs:\n{block.text}"
            path = place / block.file
            if path.exists():
                run_waiting()  # these commands use the earlier text
            path.write_text(block.text)
        for command in documented.commands(block) if block.language == "bash" else ():
            if command.startswith(("pip install", "cp ", "pytest partial_norm/")):
                run_waiting()  # the tests of a package import it from its folder, not from where it is installed
            if command.startswith("pip install"):
                site.install_folder(place / command.split()[-1])
            elif command.startswith("cp "):
                documented.run(command, place)
            else:
                waiting.append(command)
    run_waiting()
    return place


def program(command: str) -> list[str]:
    """The words of a command that a process of the site runs."""
    words = shlex.split(command)
    assert words[0] in ("loopkit", "pytest"), f"no test knows how to run {words[0]!r}"
    return [words[0], *documented.KIT, *words[1:]] if words[0] == "pytest" else words


def test_the_file_s_run_knows_its_component(followed: Path) -> None:
    record = json.loads((followed / "runs/partial/provenance.json").read_text())["components"]
    assert record["readout partial_norm"].startswith(f"{followed / 'my_readout.py'} (sha256 ")
    assert list((followed / "runs/partial/eval").glob("*.json"))
    assert (followed / "runs/partial/report.md").is_file()


def test_the_puzzle_is_marked_by_difficulty(followed: Path) -> None:
    """More loops solve more boards, and each group of boards has its figures."""
    results = [json.loads(path.read_text()) for path in (followed / "runs/sudoku/eval").glob("*.json")]
    rows = next(result["depths"] for result in results if len(result["depths"]) == 6)
    assert all(list(row["groups"]) == ["2 empty", "4 empty", "6 empty"] for row in rows)
    assert rows[3]["exact_match"] > rows[0]["exact_match"]


def test_the_package_s_run_knows_its_package(followed: Path) -> None:
    (run,) = (followed / "runs").glob("partial_norm-*")
    record = json.loads((run / "provenance.json").read_text())["components"]
    assert record["readout partial_norm"].startswith("partial_norm 0.1.0 (sha256 ")
    results = [json.loads(path.read_text()) for path in (run / "eval").glob("*.json")]
    assert any([row["depth"] for row in result["depths"]] == list(range(1, 9)) for result in results)
