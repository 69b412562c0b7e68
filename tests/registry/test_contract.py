"""Contracts as read from source text, held against the classes and the components that loopkit ships."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

from loopkit.registry.catalog import catalog
from loopkit.registry.contract import contract_file, read_contract
from loopkit.registry.kinds import KINDS, WIRING
from loopkit.registry.source import parse
from loopkit.registry.traits import TRAITS


@pytest.mark.parametrize("kind", KINDS)
def test_contract_agrees_with_the_class(kind: str) -> None:
    contract = read_contract(kind)
    cls = getattr(importlib.import_module(contract.module), contract.name)
    for member in contract.members:
        if "(" in member.signature.partition(":")[0]:
            assert inspect.isroutine(getattr(cls, member.name))
        else:
            assert member.required is not hasattr(cls, member.name)
        assert member.doc, f"{kind}: {member.name} has no text"
    if abstract := getattr(cls, "__abstractmethods__", None):
        methods = {m.name for m in contract.members if m.required and callable(getattr(cls, m.name, None))}
        assert methods == set(abstract)


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_components_keep_to_the_contract(kind: str) -> None:
    """Every trait that one states is listed for its kind, every wiring argument has the documented type."""
    contract = read_contract(kind)
    for offer in catalog(False).of(kind):
        assert offer.schema is not None
        assert set(offer.schema.traits) <= set(contract.traits)
        for name, written in constructor_types(offer.schema.qualname, offer.schema.file).items():
            documented = WIRING[name][0]
            assert written.removesuffix(" | None") in (documented, *documented.split(" | "))


def constructor_types(name: str, file: object) -> dict[str, str]:
    node = parse(file).classes[name]  # type: ignore[arg-type]
    constructors = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    return {
        argument.arg: ast.unparse(argument.annotation)
        for item in constructors
        for argument in item.args.args[1:]
        if argument.annotation
    }


def test_every_wiring_argument_has_a_meaning() -> None:
    assert {name for kind in KINDS.values() for name in kind.wiring} <= set(WIRING)


def test_traits_name_known_kinds() -> None:
    assert {kind for trait in TRAITS.values() for kind in trait.kinds} <= set(KINDS)


def test_types_of_signatures_are_followed() -> None:
    """Those of the contract's own file, what these name in turn, and those of the loop."""
    assert [type.name for type in read_contract("source").types] == ["Words", "Document", "Span"]
    assert {"Request", "Corpus", "Completion"} <= {type.name for type in read_contract("task").types}
    assert {"ProbeResult", "Figure", "Trajectory", "Batch"} <= {type.name for type in read_contract("probe").types}
    (step,) = read_contract("placement").types
    assert {method.name for method in step.methods} == {"t", "dt", "gate", "counted"}
    assert "0 in the prelude" in step.doc


def test_members_of_every_module_are_shared() -> None:
    assert {member.name for member in read_contract("norm").shared} == {"no_decay", "stacked_rows", "max_depth"}
    assert "no_decay" not in {member.name for member in read_contract("injection").shared}
    assert read_contract("schedule").shared == ()


def test_optional_methods_are_not_required() -> None:
    core = {member.name: member.required for member in read_contract("core").members}
    assert core == {"streams": False, "forward": True, "emit": False}
    probe = {member.name: member.required for member in read_contract("probe").members}
    assert probe["result"]
    assert not probe["share"], "it raises, and only a shareable probe needs it"


def test_reading_contracts_imports_no_torch() -> None:
    code = (
        "import sys; from loopkit.registry.contract import read_contract; from loopkit.registry import KINDS; "
        "[read_contract(kind) for kind in KINDS]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_contract_files_exist() -> None:
    assert all(contract_file(kind).is_file() for kind in KINDS)
