"""The contract of a kind, on its page and in the guide on plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.reference import contract_markdown
from docs.site.reference.contract_guide import with_contracts
from loopkit.registry.contract import read_contract
from loopkit.registry.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_page_shows_complete_contract(kind: str) -> None:
    contract = read_contract(kind)
    page = contract_markdown(contract)
    for member in (*contract.members, *contract.functions):
        assert member.signature in page
    for name, _, _ in contract.wiring:
        assert f"| `{name}` |" in page
    for name in contract.traits:
        assert f"| `{name}` |" in page
    for type in contract.types:
        assert f"from {type.module} import {type.name}\n" in page


def test_plugin_guide_contains_current_contracts(root: Path) -> None:
    """Regenerate with ``python -m docs.site.reference.contract_guide docs/guides/writing_a_plugin.md``."""
    text = (root / "docs/guides/writing_a_plugin.md").read_text()
    assert text == with_contracts(text)
    for kind in KINDS.values():
        for member in read_contract(kind.name).members:
            assert f"    {member.signature[:60]}" in text
        assert f"[`{kind.name}`](../../loopkit/components/{kind.name}" in text
        for function in read_contract(kind.name).functions:
            assert f"    {function.signature[:60]}" in text
    for member in ("t.state(k: int)", "t.carried(k: int)", "t.rerun(loops: Loops)", "InitContext.max_loops"):
        assert member in text


def test_guide_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks the markers <!-- contracts"):
        with_contracts("# A guide\n")
