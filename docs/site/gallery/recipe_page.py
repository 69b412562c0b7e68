"""The page of a recipe: what it tests, how to run it, what it changes, what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from docs.site.gallery.cards import costs
from docs.site.gallery.entry import RecipeEntry
from docs.site.gallery.evidence import Evidence, curves_of
from docs.site.gallery.results import (
    claims_table,
    depths_table,
    exit_bars,
    reported_tables,
    runs_table,
)
from loopkit.registry.kinds import KINDS
from loopkit.report.pages.markdown import code, folded, link, paper_link, prose, table
from loopkit.report.plots.curve import describe_curves

MOST_ROWS = 16
"""A table of more depths than this is folded: the plot above it says the same at a glance."""
Plots = Mapping[tuple[str, str, str, str], str]
"""Files of plots by study, arm, scale, and what they show: ``curve`` or ``depths``."""


def recipe_page(entry: RecipeEntry, known: frozenset[str], plots: Plots) -> str:
    """The page of a recipe.

    Args:
        entry: The recipe.
        known: Pages that exist, so that only these are linked.
        plots: Drawn plots of its runs.
    """
    parts = [
        f"# {prose(entry.name)}",
        f'<span class="lk-status lk-{entry.status}">{entry.status}</span>',
        prose(entry.recipe.description or "This recipe has no description."),
        _origin(entry, known),
        "## Run it",
        _commands(entry),
        "## What it changes",
        _changes(entry, known),
        "## Results",
        *_results(entry, plots),
        "## What it is made of",
        _components(entry, known),
        _files(entry),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _origin(entry: RecipeEntry, known: frozenset[str]) -> str:
    rows = [(name, text) for name, text in costs(entry.cost)]
    if entry.cost.why and entry.cost.parameters is not None:
        rows.append(("not known", prose(entry.cost.why)))
    if entry.recipe.paper:
        rows.insert(0, ("paper", paper_link(entry.recipe.paper)))
    if entry.parent:
        rows.append(("starts from", _parent(entry, known)))
    rows.append(("profiles", ", ".join(f"`{name}`" for name in entry.profiles) or "none"))
    if entry.problems:
        rows.append(("problems", "; ".join(map(prose, entry.problems))))
    return table(("", ""), rows)


def _parent(entry: RecipeEntry, known: frozenset[str]) -> str:
    assert entry.parent is not None
    name = entry.parent.rpartition("/")[2].removesuffix(".yaml")
    page = f"gallery/{name}.md"
    return link(prose(name), page, entry.page) if page in known else f"`{entry.parent}`"


def _commands(entry: RecipeEntry) -> str:
    train = f"loopkit train {entry.name}"
    whole = f"The experiment as published, then its evaluation:\n\n{code(f'{train}{_NEXT}', 'bash')}"
    small = next((name for name in ("mini", "smoke") if name in entry.profiles), None)
    if small is None:
        return f"{whole}\n\nIt has no profile for a laptop."
    said = "minutes on a laptop" if small == "mini" else "seconds, to see that everything runs"
    return f"{whole}\n\nThe same experiment in small ({said}):\n\n{code(f'{train} --profile {small}{_NEXT}', 'bash')}"


_NEXT = " && loopkit eval"


def _changes(entry: RecipeEntry, known: frozenset[str]) -> str:
    if entry.parent is None:
        return "It stands by itself: it extends no other recipe."
    parent = _parent(entry, known)
    if entry.changes is None:
        return f"{parent} is not complete by itself, so there is nothing to compare with; the recipe's text is below."
    if not entry.changes:
        return f"Nothing but its description differs from {parent}."
    values = [[_from_the_recipe(text, entry) for text in (change.before, change.after)] for change in entry.changes]
    rows = [(f"`{change.key}`", *map(_value, pair)) for change, pair in zip(entry.changes, values, strict=True)]
    return f"Against {parent}, both resolved:\n\n" + table(("key", "there", "here"), rows)


def _value(text: str) -> str:
    return f"`{text}`" if text else "absent"


def _results(entry: RecipeEntry, plots: Plots) -> Iterator[str]:
    if not entry.evidence:
        yield "No study runs this recipe, so there are no results."
        return
    measured = [found for found in entry.evidence if found.scales]
    if not measured:
        names = ", ".join(link(prose(found.study.title), found.study.page, entry.page) for found in entry.evidence)
        yield f"It has not been measured yet: it is part of {names}, which has no results for it."
    for found in entry.evidence:
        yield from _evidence(entry, found, plots)


def _evidence(entry: RecipeEntry, found: Evidence, plots: Plots) -> Iterator[str]:
    where = link(prose(found.study.title), found.study.page, entry.page)
    changes = f", with {', '.join(f'`{text}`' for text in found.changes)}" if found.changes else ""
    printed = list(reported_tables(found))
    if printed:
        yield f"### What the paper reports {{ #paper-{found.study.name}-{found.arm} }}"
        yield from printed
    for scale, seeds in found.scales.items():
        profile = found.study.profiles[scale]
        yield f"### Measured, {scale} {{ #{found.study.name}-{found.arm}-{scale} }}"
        yield f"In {where} as *{prose(found.study.label_of(found.arm))}*{changes}, {profile['date'][:10]}."
        yield runs_table(seeds)
        if page := plots.get((found.study.name, found.arm, scale, "curve")):
            yield f"![{describe_curves(curves_of(seeds))}]({page}){{ .lk-wide }}"
        if page := plots.get((found.study.name, found.arm, scale, "depths")):
            said = f"Perplexity or accuracy and state norm of {entry.name} by depth, {scale}"
            yield f"![{said}]({page}){{ .lk-wide }}"
        for seed, run in seeds.items():
            body, depths = depths_table(run["evaluation"]), len(run["evaluation"]["depths"])
            open_to_all = len(seeds) == 1 and depths <= MOST_ROWS
            said = f"Seed {seed}, by depth"
            yield f"{said}:\n\n{body}" if open_to_all else folded(f"{said} ({depths} depths)", body)
        yield from exit_bars(next(iter(seeds.values())))
        yield claims_table(found, scale, entry.page)


def _components(entry: RecipeEntry, known: frozenset[str]) -> str:
    rows: list[tuple[str, str]] = []
    for kind in KINDS:
        names = [name for other, name in entry.components if other == kind]
        if names:
            rows.append(
                (_linked(kind, f"reference/{kind}/index.md", known, entry.page), _names(kind, names, entry, known))
            )
    return table(("kind", "components"), rows)


def _names(kind: str, names: Sequence[str], entry: RecipeEntry, known: frozenset[str]) -> str:
    return ", ".join(_linked(name, f"reference/{kind}/{name}.md", known, entry.page) for name in names)


def _linked(text: str, page: str, known: frozenset[str], here: str) -> str:
    return link(f"`{text}`", page, here) if page in known else f"`{text}`"


def _files(entry: RecipeEntry) -> str:
    written = code(entry.text, "yaml")
    whole = code(_from_the_recipe(entry.recipe.to_yaml(), entry), "yaml")
    return f"The recipe as written:\n\n{written}\n\n" + folded("The recipe, resolved: every default written out", whole)


def _from_the_recipe(text: str, entry: RecipeEntry) -> str:
    """Paths as the recipe could write them: a page says nothing of the machine that made it."""
    return text.replace(f"{entry.path.resolve().parent.parent}/", "../")
