"""The contract of a kind as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from loopkit.registry.contract import Contract, Member, Type
from loopkit.registry.source import argument_docs
from loopkit.registry.traits import Trait
from loopkit.report.pages.docstring import body, sections
from loopkit.report.pages.markdown import code, prose, table

SHARED = "Any module may define"
NO_WIRING = "The constructor receives no wiring: every parameter is an option after `*`."


def contract_markdown(contract: Contract) -> str:
    """Write a contract for the page of its kind, without a heading."""
    types = [f"### {type.name} {{ #type-{type.name.lower()} }}\n\n{_type(type)}" for type in contract.types]
    parts = [
        code(f"from {contract.module} import {contract.name}", "python"),
        body(contract.doc),
        *(f"**{name}.** {text}" for name, text in sections(contract.doc).items()),
        f"Dims: {prose(contract.letters)}." if contract.letters else "",
        "### The constructor receives",
        table(("argument", "type", "meaning"), [(f"`{n}`", f"`{t}`", prose(text)) for n, t, text in contract.wiring])
        if contract.wiring
        else NO_WIRING,
        *_member_list("A component must define", [m for m in contract.members if m.required]),
        *_member_list("A component may define", [m for m in contract.members if not m.required]),
        *_member_list(SHARED, contract.shared),
        "### Traits of the registration",
        traits_table(contract.traits),
        *types,
        *_member_list("Functions for components", contract.functions),
    ]
    return "\n\n".join(part for part in parts if part)


def traits_table(traits: dict[str, Trait]) -> str:
    """Write a table of traits with their values and meaning."""
    rows = [(f"`{name}`", prose(trait.values), prose(trait.meaning)) for name, trait in traits.items()]
    return table(("trait", "values", "meaning"), rows)


def _member_list(heading: str, members: Sequence[Member]) -> list[str]:
    if not members:
        return []
    return [f"### {heading}", *(_member(member) for member in members)]


def _member(member: Member) -> str:
    described = table(("argument", "meaning"), [(f"`{n}`", prose(t)) for n, t in argument_docs(member.doc).items()])
    parts = [
        code(member.signature, "python"),
        body(member.doc),
        described if argument_docs(member.doc) else "",
        *(f"**{name}.** {text}" for name, text in sections(member.doc).items()),
    ]
    return "\n\n".join(part for part in parts if part)


def _type(type: Type) -> str:
    rows = [(f"`{name}`", prose(text)) for name, text in argument_docs(type.doc).items()]
    methods = [(f"`{method.signature}`", prose(method.summary)) for method in type.methods]
    parts = [
        code(f"from {type.module} import {type.name}", "python"),
        body(type.doc),
        table(("field", "meaning"), rows) if rows else "",
        table(("method or property", "returns"), methods) if methods else "",
    ]
    return "\n\n".join(part for part in parts if part)
