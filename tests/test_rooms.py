"""The order of rooms: imports run down the list, never up, and the rooms without torch stay without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "loopkit"
ALL = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")}
BASE = {"registry", "recipe"}
PARTS = BASE | {"loop", "components"}
MAY_IMPORT: dict[str, set[str]] = {
    "registry": set(),
    "recipe": {"registry"},
    "runs": BASE,
    "loop": set(),
    "components": {"registry", "loop"},
    "model": PARTS,
    "objective": PARTS,
    "data": PARTS | {"runs"},
    "inference": PARTS | {"model"},
    "evaluation": PARTS | {"model", "objective", "inference", "data", "runs"},
    "training": PARTS | {"model", "objective", "inference", "data", "runs", "evaluation"},
    "report": BASE | {"runs"},
    "studies": PARTS | {"model", "data", "runs", "evaluation", "training", "report"},
    "interop": PARTS | {"model", "data", "inference", "evaluation", "runs", "report"},
    "testing": PARTS | {"model", "objective", "data", "runs", "evaluation", "training"},
    "cli": ALL,
}
HEAVY = {"torch", "deepspeed", "transformers", "datasets"}
WITHOUT_TORCH = {"registry", "recipe", "runs", "report", "cli"}
FILES = sorted(PACKAGE.rglob("*.py"))


def imported(file: Path) -> Iterator[tuple[str, bool]]:
    """Every module a file imports, and whether it does so when it is loaded."""
    tree = ast.parse(file.read_text())
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        at_load = getattr(node, "col_offset", 1) == 0 and id(node) not in guarded
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file} imports relatively"
            yield node.module, at_load


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_run_down_the_list(file: Path) -> None:
    room = file.relative_to(PACKAGE).parts[0]
    for module, at_load in imported(file):
        parts = module.split(".")
        target = parts[1] if parts[0] == "loopkit" and len(parts) > 1 else None
        if room in MAY_IMPORT and target in ALL:
            assert target == room or target in MAY_IMPORT[room], f"{file} imports {module}"
        if room in WITHOUT_TORCH and at_load:
            assert parts[0] not in HEAVY, f"{file} imports {module} when it is loaded"


def test_every_room_has_its_place() -> None:
    assert set(MAY_IMPORT) >= ALL


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["list", "readout"], ["validate", "wikitext_44m_raw"], ["show", "wikitext_44m_raw"]]
)
def test_light_commands_do_not_import_torch(words: list[str]) -> None:
    code = f"""
import sys
from loopkit.cli import main
try:
    main({words!r}, prog_name="loopkit")
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = {sorted(HEAVY)!r}
assert not [name for name in heavy if name in sys.modules], [name for name in heavy if name in sys.modules]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
