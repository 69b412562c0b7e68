"""The index of the gallery: a card for each recipe, and the filter."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from docs.site.gallery.entry import VALIDATED, Cost, RecipeEntry
from docs.site.gallery.evidence import rank
from docs.site.gallery.small_plot import depth_line
from loopkit.registry.kinds import KINDS
from loopkit.report.numbers import format_amount
from loopkit.report.pages.markdown import link, prose

PAGE = "gallery/index.md"

INTRODUCTION = """---
title: Recipes
hide: [navigation, toc]
---

# Recipes

One card for each experiment. A recipe is *validated* if it and all its profiles are valid; *smoke*, *mini* and *full*
name the scale at which a study has trained and evaluated it. Plots and numbers come from the results files of
[studies](../studies/index.md); a recipe without a plot has not been evaluated. Costs are those of the recipe without a
profile.
"""

METRICS = (("exact_match", "exact match"), ("token_ppl", "perplexity"), ("loss", "loss, nats"))
"""The plot of a card shows the first of these that was measured."""


def gallery_page(entries: Sequence[RecipeEntry]) -> str:
    """Write the index of the gallery.

    Args:
        entries: All recipes.
    """
    measured_first = sorted(entries, key=lambda entry: (entry.status == VALIDATED, rank(entry.status), entry.name))
    cards = "\n\n".join(_card(entry) for entry in measured_first)
    return f'{INTRODUCTION}\n{_filter(entries)}\n\n<div class="lk-cards" markdown>\n\n{cards}\n\n</div>\n'


def _filter(entries: Iterable[RecipeEntry]) -> str:
    """Write the form of ``gallery.js``; without JavaScript it stays hidden and all cards are visible."""
    entries = list(entries)
    used = sorted({item for entry in entries for item in entry.components}, key=lambda item: list(KINDS).index(item[0]))
    kinds = list(dict.fromkeys(kind for kind, _ in used))
    papers = sorted({entry.recipe.paper for entry in entries if entry.recipe.paper})
    states = sorted({entry.status for entry in entries}, key=lambda name: (name == VALIDATED, rank(name)))
    groups = "".join(
        f'<optgroup label="{kind}">'
        + "".join(f'<option value="{kind}/{name}">{name}</option>' for used_kind, name in used if used_kind == kind)
        + "</optgroup>"
        for kind in kinds
    )
    return (
        '<form class="lk-filter" id="lk-filter" role="search" aria-label="Filter recipes" hidden>\n'
        '<label>Search<input type="search" name="q" autocomplete="off" placeholder="name or words"></label>\n'
        f'<label>Kind<select name="kind"><option value="">any</option>{_options(kinds)}</select></label>\n'
        f'<label>Component<select name="component"><option value="">any</option>{groups}</select></label>\n'
        f'<label>Paper<select name="paper"><option value="">any</option>{_options(papers)}</select></label>\n'
        f'<label>Status<select name="status"><option value="">any</option>{_options(states)}</select></label>\n'
        '<button type="reset">Show all</button>\n'
        '<p class="lk-count" id="lk-count" role="status" aria-live="polite"></p>\n'
        "</form>"
    )


def _options(values: Iterable[str]) -> str:
    return "".join(f'<option value="{html.escape(value)}">{html.escape(value)}</option>' for value in values)


def _card(entry: RecipeEntry) -> str:
    components = " ".join(f"{kind}/{name}" for kind, name in entry.components)
    paper = entry.recipe.paper or ""
    facts = [f"**{name}** {text}" for name, text in costs(entry.cost)]
    if paper:
        facts.append(f"**paper** {paper}")
    return "\n".join(
        [
            f'<article class="lk-card" markdown data-components="{html.escape(components)}" '
            f'data-paper="{html.escape(paper)}" data-status="{entry.status}">',
            "",
            f"### {link(prose(entry.name), entry.page, PAGE)} {{ #{entry.name} }}",
            "",
            f'<span class="lk-status lk-{entry.status}">{entry.status}</span>',
            "",
            prose(entry.recipe.description or "No description."),
            "",
            _plot(entry) or '<p class="lk-unmeasured">not evaluated yet</p>',
            "",
            " · ".join(facts),
            "",
            "</article>",
        ]
    )


def costs(cost: Cost) -> list[tuple[str, str]]:
    """List the costs of a recipe as names and texts."""
    rows = []
    if cost.parameters is not None:
        rows.append(("parameters", f"{cost.parameters:,}"))
    if cost.flops_per_token is not None:
        rows.append(("training", f"{format_amount(cost.flops_per_token, 'FLOP')} per token"))
    if cost.training_flops is not None:
        rows.append(("total training", format_amount(cost.training_flops, "FLOP")))
    return rows or [("cost", cost.unknown or "not estimated")]


def _plot(entry: RecipeEntry) -> str:
    """Draw the run at the largest scale: the first seed of the first study."""
    runs = [
        (scale, seeds)
        for evidence in entry.evidence
        if not evidence.changes
        for scale, seeds in evidence.scales.items()
    ]
    if not runs:
        return ""
    scale, seeds = min(runs, key=lambda run: rank(run[0]))
    rows = next(iter(seeds.values()))["evaluation"]["depths"]
    for name, label in METRICS:
        if plot := depth_line(rows, name, f"{label}, {scale}"):
            return plot
    return ""
