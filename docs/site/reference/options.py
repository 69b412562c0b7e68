"""The table of options of a component or a section of the recipe format."""

from __future__ import annotations

from collections.abc import Mapping

from loopkit.recipe.authoring.describe import describe
from loopkit.registry.schema import Leaf, Option, SectionMap, SectionRef, Slot, SlotList, SlotMap
from loopkit.report.pages.markdown import link, literal, prose, table


def options_table(options: Mapping[str, Option], here: str, sections: Mapping[str, str]) -> str:
    """Write the table of options: name, accepted values, default, meaning.

    Args:
        options: Options by name.
        here: Path of the page with the table.
        sections: Pages of the sections of the recipe format, by class name.
    """
    rows = [
        (f"`{option.name}`", _accepts(option, here, sections), _default(option), prose(option.doc))
        for option in options.values()
    ]
    return table(("option", "accepts", "default", "meaning"), rows)


def _accepts(option: Option, here: str, sections: Mapping[str, str]) -> str:
    text = prose(describe(option.annotation))
    match option.annotation:
        case Slot(kind=kind) | SlotList(kind=kind) | SlotMap(kind=kind):
            page = link(kind, f"reference/{kind}/index.md", here)
            return f"{text} → {page}"
        case SectionRef(name=name) | SectionMap(name=name) if name in sections:
            return f"{text} → {link(name.lower(), sections[name], here)}"
    return text


def _default(option: Option) -> str:
    if option.required:
        return "absent" if isinstance(option.annotation, SectionRef | SectionMap) else "**required**"
    if not isinstance(option.annotation, Leaf) and isinstance(option.default, str):
        return f"`{option.default}`"
    return f"`{literal(option.default)}`"
