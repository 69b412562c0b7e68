"""The page of a study: its claims, judged, its arms, its plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.site.gallery.evidence import StudyFile
from docs.site.gallery.results import verdict
from loopkit.report.numbers import figure
from loopkit.report.pages.markdown import code, link, paper_link, printed, prose, relative, table
from loopkit.report.tables.study import measurement, summary

Json = Mapping[str, Any]
INDEX = "studies/index.md"


def studies_page(studies: Sequence[StudyFile]) -> str:
    """The index of studies."""
    rows = [
        (
            link(prose(study.title), study.page, INDEX),
            prose(study.study.get("description", "")),
            paper_link(study.study["paper"]) if study.study.get("paper") else "",
            "; ".join(f"{scale}: {summary(found)}" for scale, found in study.profiles.items()) or "not run yet",
        )
        for study in studies
    ]
    about = "A study runs a set of recipes and holds what it measures against the claims of a paper."
    return f"# Studies\n\n{about}\n\n" + table(("study", "what it shows", "paper", "verdicts"), rows) + "\n"


def study_page(study: StudyFile, known: frozenset[str], plots: Mapping[str, Sequence[str]]) -> str:
    """The page of a study.

    Args:
        study: The study.
        known: Pages that exist.
        plots: Of each scale, files from the root of the site.
    """
    written = study.study
    parts = [
        f"# {prose(study.title)}",
        prose(written.get("description", "")),
        _facts(study),
        "## Run it",
        _commands(study),
        *_results(study, plots),
        "## Arms",
        _arms(study, known),
        *_reported(written),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(study: StudyFile) -> str:
    written = study.study
    rows = [
        ("seeds", ", ".join(map(str, written["seeds"]))),
        ("depths", f"`{written['depths']}`"),
        ("arms", str(len(written.get("arms", {})))),
        ("claims", str(len(written.get("claims", {})))),
    ]
    if written.get("paper"):
        rows.insert(0, ("paper", paper_link(written["paper"])))
    return table(("", ""), rows)


def _commands(study: StudyFile) -> str:
    said = [code(f"loopkit reproduce {study.name}", "bash")]
    for name in study.study.get("profiles", {}):
        said.append(code(f"loopkit reproduce {study.name} --profile {name}", "bash"))
    return "\n\n".join(said)


def _results(study: StudyFile, plots: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if not study.profiles:
        yield "## Claims"
        yield (
            '!!! note "No results yet"\n\n    This study has not been run, or its results were not kept. The claims '
            "below are what it would be held against."
        )
        yield table(("claim", "paper"), [(prose(c["says"]), prose(c.get("paper", ""))) for c in _claims(study)])
        return
    for scale, found in study.profiles.items():
        yield f"## Claims at scale {scale} {{ #{scale} }}"
        yield f"{summary(found)}. Judged on {found['date'][:10]}, the mean over seeds against the bound."
        rows = [
            (
                prose(claim["says"]) + (" **\\***" if claim["must"] else ""),
                prose(claim["paper"]),
                prose(measurement(claim)),
                verdict(claim),
            )
            for claim in found["claims"].values()
        ]
        yield table(("claim", "paper", "measured", "verdict"), rows)
        yield "**\\*** where this does not hold, the implementation is wrong; the others are reported as they come."
        for plot in plots.get(scale, ()):
            name = plot.rpartition("/")[2].removesuffix(".svg").replace("_", " ")
            yield f"![{prose(study.title)}: {name}, scale {scale}]({relative(plot, study.page)}){{ .lk-wide }}"
        yield f"### Measured, {scale} {{ #{scale}-arms }}"
        yield _measured(found)


def _claims(study: StudyFile) -> list[Json]:
    return list(study.study.get("claims", {}).values())


def _measured(found: Json) -> str:
    """A row for each run."""
    rows = []
    for arm in found["arms"].values():
        for seed, entry in arm["seeds"].items():
            depths = entry["evaluation"]["depths"]
            figures = [_at(depths[-1], "state_norm", "mean"), _at(depths[0], "token_ppl"), _at(depths[-1], "token_ppl")]
            figures.append(_at(depths[-1], "exact_match"))
            rows.append([prose(arm["label"]), seed, *figures, f"{entry['tokens']:,}", f"{entry['train_seconds']:,.0f}"])
    heading = [
        "arm",
        "seed",
        "state norm, last depth",
        "perplexity, first depth",
        "perplexity, last depth",
        "exact, last depth",
        "tokens",
        "training, s",
    ]
    kept = [index for index in range(len(heading)) if index < 2 or any(row[index] for row in rows)]
    return table([heading[i] for i in kept], [[row[i] for i in kept] for row in rows], numbers=True)


def _at(row: Json, *path: str) -> str:
    value: Any = row
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else figure(value)


def _arms(study: StudyFile, known: frozenset[str]) -> str:
    rows = []
    for name, written in study.study.get("arms", {}).items():
        recipe = study.recipe_of(name).stem
        page = f"gallery/{recipe}.md"
        shown = link(prose(recipe), page, study.page) if page in known else f"`{recipe}`"
        changes = ", ".join(f"`{text}`" for text in written.get("set") or ())
        rows.append((f"`{name}`", prose(study.label_of(name)), shown, changes))
    kept = 4 if any(row[3] for row in rows) else 3
    return table(("arm", "label", "recipe", "with")[:kept], [row[:kept] for row in rows])


def _reported(written: Json) -> Iterator[str]:
    """The paper's own tables."""
    tables = {
        name: rows
        for name, rows in written.get("reported", {}).items()
        if isinstance(rows, Mapping) and "columns" in rows
    }
    if tables:
        yield "## What the paper reports"
    for name, rows in tables.items():
        yield f"### {prose(name.replace('_', ' '))} {{ #reported-{name.replace('_', '-')} }}"
        lines = [(f"`{arm}`", *map(printed, values)) for arm, values in rows.items() if arm != "columns"]
        yield table(("", *map(prose, rows["columns"])), lines, numbers=True)
