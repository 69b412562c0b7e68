"""The contract of a kind, as a terminal and a page show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.reference import contract_markdown, contract_text
from docs.site.reference.contract_guide import with_contracts
from loopkit.registry.contract import read_contract
from loopkit.registry.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_contract_is_shown_whole(kind: str) -> None:
    contract = read_contract(kind)
    text, page = contract_text(contract), contract_markdown(contract)
    assert max(map(len, text.splitlines()[:-1])) <= 80
    joined = " ".join(text.split())
    for member in (*contract.members, *contract.functions):
        assert " ".join(member.signature.split()) in joined
        assert member.signature in page
    for name, kind_of_value, meaning in contract.wiring:
        assert f"{name}: {kind_of_value}" in text
        assert meaning.rstrip(".").replace("`", "") in joined
    for name in contract.traits:
        assert f"  {name}: " in text
        assert f"| `{name}` |" in page
    for type in contract.types:
        assert f"{type.name}, from {type.module}:" in text
        assert f"from {type.module} import {type.name}\n" in page


def test_attributes_stand_once() -> None:
    text = contract_text(read_contract("regularizer"))
    assert text.count("Its coefficient in the total.") == 1
    assert "A component must define:\n  weight: float\n      Its coefficient in the total.\n" in text


def test_arguments_of_methods_hang_below_their_heading() -> None:
    text = contract_text(read_contract("schedule"))
    assert "      Args:\n        rng: Source of randomness; the only one a schedule may use.\n" in text
    assert "      Returns:\n        int64 [count].\n" in text


def test_guide_on_plugins_holds_the_contracts(root: Path) -> None:
    """Written anew by ``python -m docs.site.reference.contract_guide docs/guides/writing_a_plugin.md``."""
    text = (root / "docs/guides/writing_a_plugin.md").read_text()
    assert text == with_contracts(text)
    for kind in KINDS.values():
        for member in read_contract(kind.name).members:
            assert f"    {member.signature[:60]}" in text
        assert f"[`{kind.name}`](../../loopkit/components/{kind.name}" in text


def test_a_guide_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no <!-- contracts"):
        with_contracts("# A guide\n")
