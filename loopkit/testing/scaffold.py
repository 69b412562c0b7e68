"""The files of a new plugin package: components, a recipe that uses them, and a test that runs the kit."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loopkit.errors import UserError, file_errors
from loopkit.recipe.read import yaml_text
from loopkit.registry import KINDS
from loopkit.registry.catalog import catalog, did_you_mean

TEMPLATES = Path(__file__).with_name("templates")

RECIPE_PATHS: dict[str, tuple[str, ...]] = {
    **{kind: ("model", kind) for kind in ("position", "block", "core", "start", "injection", "carry", "readout")},
    **{kind: ("model", kind) for kind in ("gate", "init")},
    **{kind: ("model", "block", kind) for kind in ("attention", "mlp", "norm", "placement")},
    **{kind: ("train", kind) for kind in ("schedule", "optimizer", "lr")},
    **{kind: ("data", kind) for kind in ("source", "tokenizer")},
    "supervision": ("objective", "supervision"),
    "regularizer": ("objective", "regularizers"),
    "task": ("evaluate", "tasks"),
    "probe": ("evaluate", "probes"),
    "tracker": ("trackers",),
}
"""The path of each kind in a recipe; an exit is named by ``loopkit eval --exit``."""

MAP_KINDS = ("regularizer", "task", "probe", "tracker")
"""Kinds of which a recipe can have several, by name."""

REQUIRED_OPTIONS: dict[str, dict[str, Any]] = {"attention": {"heads": 4}}
"""Required options of templates."""


@dataclass(frozen=True)
class Names:
    """The names of a plugin package and its component.

    Args:
        package: Name of the distribution, for pip.
        module: Name of the Python package.
        component: Name in recipes.
        cls: Name of the class.
    """

    package: str
    module: str
    component: str
    cls: str


def names_of(name: str, kinds: Sequence[str]) -> Names:
    """Derive all names from the name of the package.

    Raises:
        UserError: If the name is not valid for a package and a module, or already exists.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"unknown kind {kind!r}; {did_you_mean(kind, KINDS)}kinds: {', '.join(KINDS)}")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise UserError(f"{name!r} is not a package name; use letters, digits, '-' and '_', such as my-{kinds[0]}")
    module = re.sub(r"[-_.]+", "_", name).lower()
    if not module.isidentifier() or keyword.iskeyword(module) or keyword.issoftkeyword(module):
        raise UserError(f"Python cannot import a module named {module!r}; start the name with a letter: my-{name}")
    if module in sys.stdlib_module_names or find_spec(module) is not None:
        raise UserError(f"a module named {module} already exists; choose another name, such as my-{name}")
    component = module.removeprefix("loopkit_") or module
    for kind in kinds:
        if component in catalog(False).names(kind):
            raise UserError(
                f"loopkit has a {kind} named '{component}', which would take precedence; choose another name"
            )
    return Names(name, module, component, "".join(part.capitalize() for part in component.split("_")))


def plugin_files(names: Names, kinds: Sequence[str]) -> dict[str, str]:
    """The files of a package with a component of each kind, by path."""
    kinds = list(dict.fromkeys(kinds))
    return {
        "pyproject.toml": _pyproject(names, kinds),
        "README.md": _readme(names, kinds),
        f"{names.module}/__init__.py": f'"""{_describe(names, kinds)}."""\n',
        **{f"{names.module}/{kind}.py": _component(names, kind) for kind in kinds},
        f"{names.module}/recipes/{names.component}.yaml": _recipe(names, kinds),
        f"tests/test_{names.module}.py": _test(names, kinds),
    }


def _describe(names: Names, kinds: Sequence[str]) -> str:
    return f"A {_join_words(kinds)} for loopkit: {names.component}"


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _target(names: Names, kind: str) -> str:
    return f"{names.module}.{kind}:{names.cls}"


def _component(names: Names, kind: str) -> str:
    text = (TEMPLATES / f"{kind}.py").read_text(encoding="utf-8")
    return text.replace("Template", names.cls).replace('"template', f'"{names.component}')


def _pyproject(names: Names, kinds: Sequence[str]) -> str:
    entry_points = "\n".join(
        f'[project.entry-points."loopkit.{kind}"]\n{names.component} = "{_target(names, kind)}"\n' for kind in kinds
    )
    return f"""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{names.package}"
version = "0.1.0"
description = "{_describe(names, kinds)}"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["loopkit"]

# one line for each component: the name that recipes use = module:Class
{entry_points}
# the folder whose recipes can be named without a path
[project.entry-points."loopkit.recipes"]
{names.component} = "{names.module}.recipes"

[project.optional-dependencies]
test = ["pytest>=8"]

[tool.setuptools]
packages = ["{names.module}", "{names.module}.recipes"]

[tool.setuptools.package-data]
"{names.module}.recipes" = ["*.yaml"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""


def _recipe(names: Names, kinds: Sequence[str]) -> str:
    values: dict[str, Any] = {
        "loopkit": 2,
        "description": f"A small model on Python's own documentation, with the {_join_words(kinds)} {names.component}.",
        "seed": 42,
        "data": {"source": "python_docs", "tokenizer": "bytes", "length": 64},
        "model": {"width": 64, "block": {"attention": {"heads": 4}, "mlp": {"ratio": 2}}, "core": 2},
        "objective": {"supervision": "per_loop"},
        "train": {
            "steps": 200,
            "batch": 16,
            "schedule": 3,
            "lr": {"type": "constant", "peak": 1e-3},
            "precision": "fp32",  # many CPUs are slow in bf16
            "device": "cpu",
        },
        "evaluate": {"every": None, "depths": "1-4", "max_tokens": 8192, "tasks": {"perplexity": {}}},
    }
    if "start" in kinds and "injection" not in kinds:  # a start may ignore the input, which then enters here
        values["model"]["injection"] = "add"
    for kind in sorted(kinds, key=lambda kind: kind != "block"):  # other kinds may be options of the block
        _insert(values, names, kind)
    note = f"# loopkit eval --exit {names.component} measures the exit on the run\n" if "exit" in kinds else ""
    return f"# loopkit train {names.component}\n{note}{yaml_text(values)}"


def _insert(values: dict[str, Any], names: Names, kind: str) -> None:
    """Insert the component of a kind into a recipe."""
    choice = {"type": names.component, **REQUIRED_OPTIONS.get(kind, {})}
    *path, last = RECIPE_PATHS.get(kind, ("model", "gate"))
    section = values
    for key in path:
        section = section.setdefault(key, {})
    if kind in MAP_KINDS:
        section[last] = {**section.get(last, {}), names.component: {}}
    elif kind == "block":  # its attention needs the number of heads
        section[last] = {**choice, **values["model"]["block"]}
    elif kind in RECIPE_PATHS:
        section[last] = choice


def _test(names: Names, kinds: Sequence[str]) -> str:
    targets = ", ".join(f'"{_target(names, kind)}"' for kind in kinds)
    files = ", ".join(f'PACKAGE / "{kind}.py"' for kind in kinds)
    selection = f"[case for target in ({targets}) for case in cases(target)]" if len(kinds) > 1 else f"cases({targets})"
    return f'''\
"""{_describe(names, kinds)}: the contract of each kind, and the recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit import load_recipe
from loopkit.testing import Case, cases

PACKAGE = Path(__file__).resolve().parent.parent / "{names.module}"


@pytest.mark.parametrize("case", {selection}, ids=str)
def test_conformance(case: Case) -> None:
    case()


def test_recipe_is_valid() -> None:
    recipe = PACKAGE / "recipes" / "{names.component}.yaml"
    assert load_recipe(recipe, plugins=[{files}], installed=False).description
'''


def _readme(names: Names, kinds: Sequence[str]) -> str:
    checks = "\n".join(f"    pytest --loopkit-component {_target(names, kind)}" for kind in kinds)
    shows = "\n".join(f"    loopkit show {kind}/{names.component}" for kind in kinds)
    summaries = "; ".join(KINDS[kind].summary for kind in kinds)
    files = [f"{names.module}/{kind}.py" for kind in kinds]
    modules = f"{_join_words([f'`{file}`' for file in files])} {'contains' if len(kinds) == 1 else 'contain'}"
    return f"""\
# {names.package}

The {_join_words(kinds)} `{names.component}` for loopkit: {summaries}.

    pip install -e .
    pytest                                            # the tests of this package
{checks}
{shows}
    loopkit validate {names.component}
    loopkit train {names.component}

{modules} the code, and the recipe is in
`{names.module}/recipes/{names.component}.yaml`. Without installation, a recipe loads them with
`plugins: [{", ".join(files)}]`, paths relative to the folder of the recipe.
"""


def check_absent(folder: Path) -> None:
    """Check that a folder does not exist, so that nothing is overwritten.

    Raises:
        UserError: If the folder exists.
    """
    if folder.exists():
        raise UserError(f"{folder} already exists; nothing was written. Choose another name, or --out")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a new folder."""
    check_absent(folder)
    for name, text in files.items():
        file = folder / name
        with file_errors(file, "written"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
