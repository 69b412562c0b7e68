"""The page of a study: its judged claims, its plots, its arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.site.gallery.evidence import StudyFile
from docs.site.gallery.results import verdict
from loopkit.report.numbers import format_value
from loopkit.report.pages.markdown import code, link, paper_link, printed, prose, relative, table
from loopkit.report.row import value_at
from loopkit.report.tables.study import measurement, summary

Json = Mapping[str, Any]
INDEX = "studies/index.md"


def studies_page(studies: Sequence[StudyFile]) -> str:
    """Write the index of studies."""
    rows = [
        (
            link(prose(study.title), study.page, INDEX),
            prose(study.study.get("description", "")),
            paper_link(study.study["paper"]) if study.study.get("paper") else "",
            "; ".join(f"{scale}: {summary(results)}" for scale, results in study.profiles.items()) or "not run yet",
        )
        for study in studies
    ]
    about = "A study runs recipes and compares their results with the claims of a paper."
    return f"# Studies\n\n{about}\n\n" + table(("study", "description", "paper", "verdicts"), rows) + "\n"


def study_page(study: StudyFile, pages: frozenset[str], plots: Mapping[str, Sequence[str]]) -> str:
    """Write the page of a study.

    Args:
        study: The study.
        pages: Existing pages; only these are linked.
        plots: Files of each scale, from the root of the site.
    """
    settings = study.study
    parts = [
        f"# {prose(study.title)}",
        prose(settings.get("description", "")),
        _facts(study),
        "## Run it",
        _commands(study),
        *_results(study, plots),
        "## Arms",
        _arms(study, pages),
        *_reported(settings),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(study: StudyFile) -> str:
    settings = study.study
    rows = [
        ("seeds", ", ".join(map(str, settings["seeds"]))),
        ("depths", f"`{settings['depths']}`"),
        ("arms", str(len(settings.get("arms", {})))),
        ("claims", str(len(settings.get("claims", {})))),
    ]
    if settings.get("paper"):
        rows.insert(0, ("paper", paper_link(settings["paper"])))
    return table(("", ""), rows)


def _commands(study: StudyFile) -> str:
    commands = [code(f"loopkit reproduce {study.name}", "bash")]
    for name in study.study.get("profiles", {}):
        commands.append(code(f"loopkit reproduce {study.name} --profile {name}", "bash"))
    return "\n\n".join(commands)


def _results(study: StudyFile, plots: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if not study.profiles:
        yield "## Claims"
        yield (
            '!!! note "No results yet"\n\n    This study has not been run, or its results are not in the '
            "repository. A run is judged by the claims below."
        )
        yield table(("claim", "paper"), [(prose(c["says"]), prose(c.get("paper", ""))) for c in _claims(study)])
        return
    for scale, results in study.profiles.items():
        yield f"## Claims at scale {scale} {{ #{scale} }}"
        yield f"{summary(results)}. Judged on {results['date'][:10]}, the mean over seeds against the bound."
        rows = [
            (
                prose(claim["says"]) + (" **\\***" if claim["must"] else ""),
                prose(claim["paper"]),
                prose(measurement(claim)),
                verdict(claim),
            )
            for claim in results["claims"].values()
        ]
        yield table(("claim", "paper", "measured", "verdict"), rows)
        yield "**\\*** must hold, else the implementation is wrong. Other claims may fail."
        for plot in plots.get(scale, ()):
            name = plot.rpartition("/")[2].removesuffix(".svg").replace("_", " ")
            yield f"![{prose(study.title)}: {name}, scale {scale}]({relative(plot, study.page)}){{ .lk-wide }}"
        yield f"### Measured, {scale} {{ #{scale}-arms }}"
        yield _measured(results)


def _claims(study: StudyFile) -> list[Json]:
    return list(study.study.get("claims", {}).values())


def _measured(results: Json) -> str:
    """Write a row for each run."""
    rows = []
    for arm in results["arms"].values():
        for seed, entry in arm["seeds"].items():
            depths = entry["evaluation"]["depths"]
            values = [_at(depths[-1], "state_norm.mean"), _at(depths[0], "token_ppl"), _at(depths[-1], "token_ppl")]
            values.append(_at(depths[-1], "exact_match"))
            rows.append([prose(arm["label"]), seed, *values, f"{entry['tokens']:,}", f"{entry['train_seconds']:,.0f}"])
    heading = [
        "arm",
        "seed",
        "state norm, last depth",
        "perplexity, first depth",
        "perplexity, last depth",
        "exact match, last depth",
        "tokens",
        "training, s",
    ]
    columns = [index for index in range(len(heading)) if index < 2 or any(row[index] for row in rows)]
    return table([heading[i] for i in columns], [[row[i] for i in columns] for row in rows], numbers=True)


def _at(row: Json, metric: str) -> str:
    value = value_at(row, metric)
    return "" if value is None else format_value(value)


def _arms(study: StudyFile, pages: frozenset[str]) -> str:
    rows = []
    for name, arm in study.study.get("arms", {}).items():
        recipe = study.recipe_of(name).stem
        page = f"gallery/{recipe}.md"
        target = link(prose(recipe), page, study.page) if page in pages else f"`{recipe}`"
        changes = ", ".join(f"`{text}`" for text in arm.get("set") or ())
        rows.append((f"`{name}`", prose(study.label_of(name)), target, changes))
    num_columns = 4 if any(row[3] for row in rows) else 3
    return table(("arm", "label", "recipe", "changes")[:num_columns], [row[:num_columns] for row in rows])


def _reported(settings: Json) -> Iterator[str]:
    """Write the tables of the paper."""
    tables = {
        name: rows
        for name, rows in settings.get("reported", {}).items()
        if isinstance(rows, Mapping) and "columns" in rows
    }
    if tables:
        yield "## Reported in the paper"
    for name, rows in tables.items():
        yield f"### {prose(name.replace('_', ' '))} {{ #reported-{name.replace('_', '-')} }}"
        lines = [(f"`{arm}`", *map(printed, values)) for arm, values in rows.items() if arm != "columns"]
        yield table(("", *map(prose, rows["columns"])), lines, numbers=True)
