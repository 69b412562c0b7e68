"""The source tree: imports run one way, packages and modules stay small, class names have one meaning."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "loopkit"
BASE = {"errors", "exit_codes", "plural", "registry", "recipe"}
PARTS = BASE | {"loop", "components"}
MODELS = PARTS | {"model", "objective", "data", "inference", "runs"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "exit_codes": set(),
    "plural": set(),
    "registry": {"errors", "plural"},
    "recipe": {"errors", "plural", "registry"},
    "runs": BASE,
    "loop": {"errors", "plural"},
    "components": {"errors", "plural", "registry", "loop"},
    "model": PARTS,
    "objective": PARTS,
    "data": PARTS | {"runs"},
    "inference": PARTS | {"model", "data"},
    "evaluation": MODELS,
    "cost": MODELS | {"evaluation"},
    "training": MODELS | {"evaluation", "cost", "error_report"},
    "error_report": BASE,
    "report": BASE | {"runs"},
    "studies": MODELS | {"evaluation", "cost", "training", "report"},
    "interop": MODELS | {"evaluation", "report"},
    "testing": MODELS | {"evaluation", "cost", "training"},
}
"""Which members of the package each one may import; ``cli``, ``api`` and the package itself may import everything."""

FREE = {"cli", "api", "__init__", "__main__"}
HEAVY = {"torch", "deepspeed", "transformers", "datasets"}
WITHOUT_TORCH = {"errors", "exit_codes", "plural", "registry", "recipe", "runs", "report", "cli"}
MAX_MODULES = 15
MAX_LINES = 300
ONE_PER_KIND = {"cli", "components", "testing/checks", "testing/templates"}
"""Packages with a module for each command, kind or rule."""

FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(file): file for file in FILES}


@cache
def imports(file: Path) -> tuple[tuple[str, bool], ...]:
    """Every module that a file imports, and whether it does so when it is loaded."""
    tree = ast.parse(file.read_text())
    type_checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    imports: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if id(node) in type_checking:
            continue
        if isinstance(node, ast.Import):
            imports += [(alias.name, node.col_offset == 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file} imports relatively"
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                imports.append((member if member in MODULES else node.module, node.col_offset == 0))
    return tuple(imports)


def members() -> dict[str, list[Path]]:
    """The files of each direct member of the package."""
    result = defaultdict(list)
    for file in FILES:
        result[file.relative_to(PACKAGE).parts[0].removesuffix(".py")].append(file)
    return result


@pytest.mark.parametrize("member", sorted(set(members()) - FREE))
def test_imports_run_one_way(member: str) -> None:
    for file in members()[member]:
        for module, _ in imports(file):
            parts = module.split(".")
            if parts[0] == "loopkit" and len(parts) > 1:
                assert parts[1] == member or parts[1] in MAY_IMPORT[member], f"{file} imports {module}"


@pytest.mark.parametrize("member", sorted(WITHOUT_TORCH))
def test_light_packages_load_no_heavy_library(member: str) -> None:
    for file in members()[member]:
        for module, at_load in imports(file):
            assert not at_load or module.split(".")[0] not in HEAVY, f"{file} imports {module} when it is loaded"


def loaded_from(module: str) -> Iterator[str]:
    """The modules that loading a module loads, itself included."""
    seen, stack = set(), [module]
    while stack:
        name = stack.pop()
        if name in seen or name not in MODULES:
            continue
        seen.add(name)
        stack += [target for target, at_load in imports(MODULES[name]) if at_load]
    yield from seen


def test_no_import_inside_a_function_hides_a_circle() -> None:
    for name, file in MODULES.items():
        if file.relative_to(PACKAGE).parts[0].removesuffix(".py") in FREE:
            continue
        for target, at_load in imports(file):
            if not at_load and target in MODULES:
                assert name not in loaded_from(target), f"{name} imports {target} in a function, which loads {name}"


def test_no_package_is_crowded() -> None:
    counts = Counter(file.parent.relative_to(PACKAGE).as_posix() for file in FILES if file.name != "__init__.py")
    assert {
        package: count for package, count in counts.items() if count > MAX_MODULES and package not in ONE_PER_KIND
    } == {}


def test_no_module_is_long() -> None:
    lengths = {module_name(file): file.read_text().count("\n") for file in FILES}
    assert {module: length for module, length in lengths.items() if length > MAX_LINES} == {}


def test_class_names_have_one_meaning() -> None:
    places = defaultdict(set)
    for file in FILES:
        if "templates" not in file.parts:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].add(module_name(file))
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["list", "readout"], ["validate", "wikitext_44m_raw"], ["show", "wikitext_44m_raw"]]
)
def test_light_commands_import_no_torch(words: list[str]) -> None:
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
