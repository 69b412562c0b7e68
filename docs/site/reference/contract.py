"""The contract of a kind as text for a terminal, and as Markdown for its page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from loopkit.registry.contract import Contract, Member, Type
from loopkit.registry.kinds import KINDS
from loopkit.registry.source import argument_docs
from loopkit.registry.traits import Trait
from loopkit.report.pages.docstring import SECTION, body, is_equation, sections
from loopkit.report.pages.markdown import code, prose, table

WIDTH = 80
SHARED = "Any module may define"
NO_WIRING = "Its constructor receives nothing: every parameter is an option behind `*`."


def contract_text(contract: Contract) -> str:
    """A contract for a terminal of 80 columns: class, constructor, methods, traits, and the types that they name."""
    kind = KINDS[contract.kind]
    parts = [
        f"{kind.name}: {kind.summary}",
        f"from {contract.module} import {contract.name}",
        _doc(contract.doc, "", leave_out=("Args", "Attributes")),
        _wrap(f"Letters: {contract.letters}.", "") if contract.letters else "",
        _part("The constructor may list, in front of *", (_entry(*wired) for wired in contract.wiring)),
        _part("A component must define", _text_members(m for m in contract.members if m.required)),
        _part("A component may define", _text_members(m for m in contract.members if not m.required)),
        _part(SHARED, _text_members(contract.shared)),
        _part(
            f'Traits, as in @register("{kind.name}", "NAME", TRAIT=VALUE)',
            (_entry(name, trait.values, trait.meaning) for name, trait in contract.traits.items()),
        ),
        *(_part(f"{type.name}, from {type.module}", _text_type(type)) for type in contract.types),
        _part(f"Functions for components, from {contract.module}", _text_members(contract.functions)),
        f"A package with one: loopkit new plugin NAME --kind {kind.name}\n"
        f"entry-point group: {kind.group}\nSource: {contract.file}:{contract.line}",
    ]
    return "\n\n".join(part for part in parts if part)


def contract_markdown(contract: Contract) -> str:
    """A contract for the page of its kind, without a heading."""
    types = [f"### {type.name} {{ #type-{type.name.lower()} }}\n\n{_type(type)}" for type in contract.types]
    parts = [
        code(f"from {contract.module} import {contract.name}", "python"),
        body(contract.doc),
        *(f"**{name}.** {text}" for name, text in sections(contract.doc).items()),
        f"Letters: {prose(contract.letters)}." if contract.letters else "",
        "### The constructor receives",
        table(("argument", "type", "meaning"), [(f"`{n}`", f"`{t}`", prose(text)) for n, t, text in contract.wiring])
        if contract.wiring
        else NO_WIRING,
        *_member_list("A component must define", [m for m in contract.members if m.required]),
        *_member_list("A component may define", [m for m in contract.members if not m.required]),
        *_member_list(SHARED, contract.shared),
        "### The registration may state",
        traits_table(contract.traits),
        *types,
        *_member_list("Functions for components", contract.functions),
    ]
    return "\n\n".join(part for part in parts if part)


def traits_table(traits: dict[str, Trait]) -> str:
    """Traits with their values and meaning."""
    rows = [(f"`{name}`", prose(trait.values), prose(trait.meaning)) for name, trait in traits.items()]
    return table(("trait", "values", "meaning"), rows)


def _part(heading: str, entries: Iterable[str]) -> str:
    listed = list(entries)
    return "\n".join([f"{heading}:", *listed]) if listed else ""


def _entry(name: str, values: str, meaning: str) -> str:
    return f"  {name}: {values}\n{_wrap(meaning, '      ')}"


def _text_members(members: Iterable[Member]) -> Iterator[str]:
    for member in members:
        yield f"{_wrap(member.signature, '  ', '    ')}\n{_doc(member.doc, '      ')}".rstrip()


def _text_type(type: Type) -> Iterator[str]:
    yield _doc(type.doc, "  ")
    for method in type.methods:
        yield f"{_wrap(method.signature, '  ', '    ')}\n{_wrap(method.summary, '      ')}"


def _doc(doc: str, indent: str, leave_out: Sequence[str] = ()) -> str:
    """A docstring in lines of the terminal's width; equations stay as they are."""
    blocks = []
    for block in doc.split("\n\n"):
        first, *entries = re.split(r"\n(?= {4}\S)", block)
        section = SECTION.match(first)
        if section and section[1] in leave_out:
            continue
        if section and entries:
            blocks.append("\n".join([_wrap(first, indent), *(_wrap(entry, f"{indent}  ", "  ") for entry in entries)]))
        else:
            blocks.append(textwrap.indent(block, indent) if is_equation(block) else _wrap(block, indent))
    return "\n".join(filter(None, blocks))


def _wrap(text: str, indent: str, hanging: str = "") -> str:
    words = " ".join(text.replace("`", "").split())
    below = indent + hanging
    return textwrap.fill(words, WIDTH, initial_indent=indent, subsequent_indent=below, break_on_hyphens=False)


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
        table(("method or property", "what it gives"), methods) if methods else "",
    ]
    return "\n\n".join(part for part in parts if part)
