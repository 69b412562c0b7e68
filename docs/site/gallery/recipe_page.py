"""The page of a recipe: description, commands, differences from its parent, results."""

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
from loopkit.report.pages.markdown import code, folded, link, paper_link, prose, recipe_value, table
from loopkit.report.plots.curve import describe_curves

MAX_ROWS = 16
"""A table of more depths is collapsed, because the plot above it shows the same."""
Plots = Mapping[tuple[str, str, str, str], str]
"""Files of plots by study, arm, scale, and ``curve`` or ``depths``."""


def recipe_page(entry: RecipeEntry, pages: frozenset[str], plots: Plots) -> str:
    """Write the page of a recipe.

    Args:
        entry: The recipe.
        pages: Existing pages; only these are linked.
        plots: Plots of its runs.
    """
    parts = [
        f"# {prose(entry.name)}",
        f'<span class="lk-status lk-{entry.status}">{entry.status}</span>',
        prose(entry.recipe.description or "This recipe has no description."),
        _facts(entry, pages),
        "## Run it",
        _commands(entry),
        "## Changes",
        _changes(entry, pages),
        "## Results",
        *_results(entry, plots),
        "## Components",
        _components(entry, pages),
        _files(entry),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(entry: RecipeEntry, pages: frozenset[str]) -> str:
    rows = [(name, text) for name, text in costs(entry.cost)]
    if entry.cost.unknown and entry.cost.parameters is not None:
        rows.append(("unknown", prose(entry.cost.unknown)))
    if entry.recipe.paper:
        rows.insert(0, ("paper", paper_link(entry.recipe.paper)))
    if entry.parent:
        rows.append(("extends", _parent(entry, pages)))
    rows.append(("profiles", ", ".join(f"`{name}`" for name in entry.profiles) or "none"))
    if entry.problems:
        rows.append(("problems", "; ".join(map(prose, entry.problems))))
    return table(("", ""), rows)


def _parent(entry: RecipeEntry, pages: frozenset[str]) -> str:
    assert entry.parent is not None
    name = entry.parent.rpartition("/")[2].removesuffix(".yaml")
    page = f"gallery/{name}.md"
    return link(prose(name), page, entry.page) if page in pages else f"`{entry.parent}`"


def _commands(entry: RecipeEntry) -> str:
    train = f"loopkit train {entry.name}"
    published = f"Train the published experiment, then evaluate it:\n\n{code(f'{train}{_NEXT}', 'bash')}"
    small = next((name for name in ("mini", "smoke") if name in entry.profiles), None)
    if small is None:
        return f"{published}\n\nThe recipe has no profile for a laptop."
    duration = "minutes on a laptop" if small == "mini" else "seconds, to test that everything runs"
    return f"{published}\n\nRun the small version ({duration}):\n\n{code(f'{train} --profile {small}{_NEXT}', 'bash')}"


_NEXT = " && loopkit eval"


def _changes(entry: RecipeEntry, pages: frozenset[str]) -> str:
    if entry.parent is None:
        return "The recipe does not extend another one."
    parent = _parent(entry, pages)
    if entry.changes is None:
        return f"{parent} is not a complete recipe, so the two cannot be compared; the text of the recipe is below."
    if not entry.changes:
        return f"Only its description differs from {parent}."
    values = [[_relative_paths(recipe_value(value), entry) for value in change.values] for change in entry.changes]
    rows = [(f"`{change.key}`", *map(_value, pair)) for change, pair in zip(entry.changes, values, strict=True)]
    return f"Differences from {parent}, both resolved:\n\n" + table(("key", "parent", "this recipe"), rows)


def _value(text: str) -> str:
    return f"`{text}`" if text else "absent"


def _results(entry: RecipeEntry, plots: Plots) -> Iterator[str]:
    if not entry.evidence:
        yield "No study runs this recipe, so there are no results."
        return
    measured = [evidence for evidence in entry.evidence if evidence.scales]
    if not measured:
        links = [link(prose(evidence.study.title), evidence.study.page, entry.page) for evidence in entry.evidence]
        yield f"Not evaluated yet: no results in {', '.join(dict.fromkeys(links))}."
    for evidence in entry.evidence:
        yield from _evidence(entry, evidence, plots)


def _evidence(entry: RecipeEntry, evidence: Evidence, plots: Plots) -> Iterator[str]:
    where = link(prose(evidence.study.title), evidence.study.page, entry.page)
    changes = f", with {', '.join(f'`{text}`' for text in evidence.changes)}" if evidence.changes else ""
    printed = list(reported_tables(evidence))
    if printed:
        yield f"### Reported in the paper {{ #paper-{evidence.study.name}-{evidence.arm} }}"
        yield from printed
    for scale, seeds in evidence.scales.items():
        profile = evidence.study.profiles[scale]
        yield f"### Measured, {scale} {{ #{evidence.study.name}-{evidence.arm}-{scale} }}"
        yield f"In {where} as *{prose(evidence.study.label_of(evidence.arm))}*{changes}, {profile['date'][:10]}."
        yield runs_table(seeds)
        if page := plots.get((evidence.study.name, evidence.arm, scale, "curve")):
            yield f"![{describe_curves(curves_of(seeds))}]({page}){{ .lk-wide }}"
        if page := plots.get((evidence.study.name, evidence.arm, scale, "depths")):
            caption = f"Perplexity or accuracy and state norm of {entry.name} by depth, {scale}"
            yield f"![{caption}]({page}){{ .lk-wide }}"
        for seed, run in seeds.items():
            body, depths = depths_table(run["evaluation"]), len(run["evaluation"]["depths"])
            is_short = len(seeds) == 1 and depths <= MAX_ROWS
            heading = f"Seed {seed}, by depth"
            yield f"{heading}:\n\n{body}" if is_short else folded(f"{heading} ({depths} depths)", body)
        yield from exit_bars(next(iter(seeds.values())))
        yield claims_table(evidence, scale, entry.page)


def _components(entry: RecipeEntry, pages: frozenset[str]) -> str:
    rows: list[tuple[str, str]] = []
    for kind in KINDS:
        names = [name for used_kind, name in entry.components if used_kind == kind]
        if names:
            rows.append(
                (_linked(kind, f"reference/{kind}/index.md", pages, entry.page), _names(kind, names, entry, pages))
            )
    return table(("kind", "components"), rows)


def _names(kind: str, names: Sequence[str], entry: RecipeEntry, pages: frozenset[str]) -> str:
    return ", ".join(_linked(name, f"reference/{kind}/{name}.md", pages, entry.page) for name in names)


def _linked(text: str, page: str, pages: frozenset[str], here: str) -> str:
    return link(f"`{text}`", page, here) if page in pages else f"`{text}`"


def _files(entry: RecipeEntry) -> str:
    text = code(entry.text, "yaml")
    resolved = code(_relative_paths(entry.recipe.to_yaml(), entry), "yaml")
    return f"The recipe file:\n\n{text}\n\n" + folded("The resolved recipe, with all defaults", resolved)


def _relative_paths(text: str, entry: RecipeEntry) -> str:
    """Replace absolute paths by relative ones, so that pages do not depend on the machine."""
    return text.replace(f"{entry.path.resolve().parent.parent}/", "../")
