"""Schemas read from text: equal to the runtime signature, and clear about what cannot be read."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from loopkit.registry import KINDS, Factory
from loopkit.registry import options as vocabulary
from loopkit.registry.annotations import BOUNDS, TYPES
from loopkit.registry.catalog import Catalog, builtin_offers
from loopkit.registry.schema import Provider, Schema, SectionRef
from loopkit.registry.source import SourceProblem, argument_docs, read_components, read_sections

BUILTIN = Catalog(tuple(builtin_offers()))
SCHEMAS = [offer.schema for offer in BUILTIN.offers if offer.schema]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.kind}-{s.name}")
def test_component_is_in_the_file_of_its_kind(schema: Schema) -> None:
    assert schema.kind == schema.file.stem or schema.kind == schema.file.parent.name


def test_every_kind_has_a_file_with_its_contract() -> None:
    for kind in KINDS.values():
        from importlib import import_module

        contract = getattr(import_module(f"loopkit.components.{kind.name}"), kind.contract)
        assert contract.__doc__


def test_vocabulary_covers_the_options_module() -> None:
    offered = {n for n, v in vars(vocabulary).items() if typing.get_origin(v) is typing.Annotated}
    assert offered <= set(TYPES)
    assert {"Divides", "AtMost"} <= set(BOUNDS)
    assert Factory is not None


BODY = '''
from __future__ import annotations
@register("norm", "mine")
class Mine(Norm):
    """A norm."""
    def __init__(self, width: int, *, {options}) -> None: ...
'''


@pytest.mark.parametrize(
    ("options", "message", "line"),
    [
        ("eps", "option 'eps' has no annotation", 6),
        ("eps: torch.dtype = 1", "'dtype' is not a type", 6),
        ("eps: float = 2 * 3", "must be a literal", 6),
        ("eps: int = 1, **rest: int", "hides options", 6),
        ("eps: Factory[Nothing]", "no kind has the contract 'Nothing'", 6),
        ("eps: Annotated[int, Odd()]", "not a known bound", 6),
        ("eps: Elsewhere = 1", "'Elsewhere' is not a type", 6),
    ],
)
def test_unreadable_option_is_reported_with_its_line(tmp_path: Path, options: str, message: str, line: int) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BODY.format(options=options))
    with pytest.raises(SourceProblem, match=message.replace("*", r"\*").replace("[", r"\[")) as caught:
        list(read_components(file, Provider("mine", "", "")))
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('@register("nrom", "mine")', "there is no kind 'nrom'", 3),
        ('@register("norm", "Not-Mine")', "lower case letters, digits and underscores, not 'Not-Mine'", 3),
        ('@register("norm", 3)', "lower case letters, digits and underscores, not 3", 3),
        ('@register("norm", NAME)', "must be literals", 3),
        ('@register("norm", "mine", fast=True)', "unknown trait fast", 3),
    ],
)
def test_invalid_registration_is_rejected_without_import(tmp_path: Path, text: str, message: str, line: int) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BODY.format(options="eps: float = 1.0").replace('@register("norm", "mine")', text))
    with pytest.raises(SourceProblem, match=message) as caught:
        list(read_components(file, Provider("mine", "", "")))
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("wiring", "message"),
    [("layer: int", "'layer' is not wiring of kind 'norm' \\(width\\)"), ("width", "'width' has no annotation")],
)
def test_wiring_is_checked_without_import(tmp_path: Path, wiring: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BODY.format(options="eps: float = 1.0").replace("width: int", wiring))
    with pytest.raises(SourceProblem, match=message) as caught:
        list(read_components(file, Provider("mine", "", "")))
    assert caught.value.line == 6


def test_duplicate_registration_names_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BODY.format(options="eps: float = 1.0") * 2)
    with pytest.raises(SourceProblem, match=r"norm 'mine' is registered twice in this file, first at line 4") as caught:
        list(read_components(file, Provider("mine", "", "")))
    assert caught.value.line > 4


def test_reading_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('executed')\n" + BODY.format(options="eps: float = 1.0"))
    (schema,) = read_components(file, Provider("mine", "", ""))
    assert schema.options["eps"].default == 1.0


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\ndef broken(:\n")
    with pytest.raises(SourceProblem, match="syntax error") as caught:
        list(read_components(file, Provider("mine", "", "")))
    assert caught.value.line == 2


def test_constructors_are_inherited_within_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    extra = '\n@register("norm", "child")\nclass Child(Mine):\n    """A child."""\n'
    file.write_text(BODY.format(options="eps: float = 1.0") + extra)
    child = list(read_components(file, Provider("mine", "", "")))[1]
    assert list(child.options) == ["eps"]
    assert child.wiring == ("width",)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package of two modules; one holds a component with a constructor, one is for its children."""
    (folder := tmp_path / "family_of_norms").mkdir()
    (folder / "__init__.py").write_text("from family_of_norms.base import Mine as Parent\n")
    body = BODY.format(options="eps: float = 1.0, centred: bool = False").replace(
        '"""A norm."""', '"""A norm.\n\n    Args:\n        eps: Floor.\n        centred: Of the parent.\n    """'
    )
    (folder / "base.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        ("from family_of_norms.base import Mine", "Mine"),
        ("from family_of_norms.base import Mine as Other", "Other"),
        ("from family_of_norms import base", "base.Mine"),
        ("import family_of_norms.base", "family_of_norms.base.Mine"),
        ("import family_of_norms.base as b", "b.Mine"),
        ("from family_of_norms import Parent", "Parent"),
        ("from .base import Mine", "Mine"),
        ("from . import base", "base.Mine"),
        ("from abc import ABC\nfrom family_of_norms.base import Mine", "ABC, Mine"),
    ],
)
def test_constructors_are_inherited_across_files(imports: str, base: str, package: Path) -> None:
    """The parent's options, wiring and descriptions, however it is imported; the child may describe them anew."""
    child = (
        f'{imports}\n\n@register("norm", "child")\nclass Child({base}):\n'
        '    """A child.\n\n    Args:\n        centred: Of the child.\n    """\n'
    )
    (package / "child.py").write_text(child)
    (schema,) = read_components(package / "child.py", Provider("mine", "", ""))
    assert {name: (option.default, option.doc) for name, option in schema.options.items()} == {
        "eps": (1.0, "Floor."),
        "centred": (False, "Of the child."),
    }
    assert schema.wiring == ("width",)
    assert {option.line for option in schema.options.values()} == {schema.line}


def test_classes_of_other_libraries_add_no_options(tmp_path: Path) -> None:
    """A base in torch or the standard library, one that is nowhere, and one that inherits from itself."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nimport nowhere_at_all\nfrom abc import ABC\n"
        + "".join(
            f'@register("norm", "n{i}")\nclass N{i}({base}):\n    """A norm."""\n'
            for i, base in enumerate(("nn.Linear", "nowhere_at_all.Thing", "ABC", "N3", "Unknown", "make()"))
        )
    )
    assert all(not schema.options for schema in read_components(tmp_path / "mine.py", Provider("mine", "", "")))


def test_inherited_options_equal_the_runtime_signature(tmp_path: Path) -> None:
    """A child of a component of loopkit has the parent's options, as Python has it when the class is built."""
    (tmp_path / "mine.py").write_text(
        "from loopkit.components.carry import Damping\nfrom loopkit.registry import register\n"
        '@register("carry", "gentle")\nclass Gentle(Damping):\n    """Damping by another name."""\n'
    )
    catalog = BUILTIN.with_files([tmp_path / "mine.py"])
    schema = catalog.get("carry", "gentle")
    assert schema.options["factor"].default == BUILTIN.get("carry", "damping").options["factor"].default
    assert list(schema.options) == list(BUILTIN.get("carry", "damping").options)


def test_argument_docs_join_continued_lines() -> None:
    doc = (
        "A thing.\n\nArgs:\n    first: One\n        two.\n    second: Three.\n\n"
        "Shapes:\n    first: not this.\nPaper: nor this."
    )
    assert argument_docs(doc) == {"first": "One two.", "second": "Three."}
    assert argument_docs("A thing.\n\nArgs:\n    first: One.\nPaper: not this.") == {"first": "One."}


def test_sections_may_name_each_other_across_files(tmp_path: Path) -> None:
    parts = {
        "whole.py": "@dataclass\nclass Whole:\n    part: Part\n    size: int = 3\n",
        "part.py": "@dataclass\nclass Part:\n    whole: Whole | None = None\n",
    }
    for name, text in parts.items():
        (tmp_path / name).write_text(text)
    sections = read_sections(*(tmp_path / name for name in parts))
    assert list(sections) == ["Whole", "Part"]
    assert [section.file.name for section in sections.values()] == list(parts)
    assert sections["Whole"].options["part"].annotation == SectionRef("Part")
    assert sections["Part"].options["whole"].annotation == SectionRef("Whole", optional=True)
