"""Write the site's pages as Markdown into ``build/docs``, from recipes, results, source text and the pages by hand.

    python docs/build.py && mkdocs build --strict

Nothing is downloaded. ``mkdocs.yml`` is all that knows the site tool; the pages are plain Markdown.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout's own package, wherever another one is installed
os.environ.setdefault("LOOPKIT_CACHE", str(ROOT / "build" / "cache"))
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import yaml  # noqa: E402

from docs.site import gallery, reference  # noqa: E402
from docs.site.gallery import Cost, RecipeEntry, StudyFile  # noqa: E402
from docs.site.reference import introductions  # noqa: E402
from docs.site.reference.command_page import page_of as command_place  # noqa: E402
from docs.site.reference.component_page import page_of as component_place  # noqa: E402
from docs.site.reference.format_page import anchor  # noqa: E402
from loopkit.cli.main import COMMANDS, main  # noqa: E402
from loopkit.recipe import Recipe  # noqa: E402
from loopkit.recipe.recipe import format_sections  # noqa: E402
from loopkit.registry.catalog import catalog  # noqa: E402
from loopkit.registry.kinds import KINDS  # noqa: E402
from loopkit.registry.schema import Schema  # noqa: E402
from loopkit.registry.source import read_sections  # noqa: E402
from loopkit.report import plot_curves, plot_depths  # noqa: E402
from loopkit.report.pages.markdown import relative  # noqa: E402
from loopkit.report.tables.study import summary  # noqa: E402

DOCS, OUT = ROOT / "docs", ROOT / "build" / "docs"
NAV, COSTS = ROOT / "build" / "nav.yml", ROOT / "build" / "costs.json"
GUIDES = (
    "quickstart",
    "writing_a_recipe",
    "choosing_a_schedule",
    "reading_an_audit",
    "evaluating_at_every_depth",
    "training_on_many_gpus",
    "reproducing_the_papers",
    "adding_a_study",
    "writing_a_plugin",
)
"""The order of guides in the menu; others that are there follow by name."""

HEADERS = {"index.md": "---\ntitle: loopkit\nhide: [navigation, toc]\n---\n"}
"""Settings of the site tool for single pages, which a checkout would show as a table."""


def build(out: Path = OUT, nav: Path = NAV) -> list[str]:
    """Write every page.

    Args:
        out: Folder of the pages; what is in it goes.
        nav: The menu, which ``mkdocs.yml`` takes in.

    Returns:
        What is wrong with recipes, in words; the pages are there all the same.
    """
    shutil.rmtree(out, ignore_errors=True)
    studies = [gallery.read_study(path) for path in sorted((ROOT / "recipes/studies").glob("*.yaml"))]
    costs = Costs(COSTS)
    files = sorted((ROOT / "recipes").glob("*.yaml"))
    entries = [costs.add(gallery.read_entry(file, studies)) for file in files]
    costs.save()
    schemas = {kind: [offer.schema for offer in catalog(False).of(kind) if offer.schema] for kind in KINDS}
    shutil.copytree(DOCS, out, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    pages = dict(reference_pages(entries, schemas, studies))
    known = frozenset([*pages, *(entry.page for entry in entries), *(study.page for study in studies)])
    pages |= gallery_pages(entries, studies, known, out)
    pages |= by_hand(studies, frozenset(pages))
    for page, text in pages.items():
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        (out / page).write_text(text, encoding="utf-8")
    menu = {"nav": menu_of(out, entries, studies, schemas)}
    nav.write_text(yaml.safe_dump(menu, sort_keys=False), encoding="utf-8")
    return [f"{entry.path.name}: {problem}" for entry in entries for problem in entry.problems]


def by_hand(studies: Sequence[StudyFile], known: frozenset[str]) -> dict[str, str]:
    """The pages under ``docs/``, with results put in and links to source files replaced by links to their pages."""
    results = {study.name: study for study in studies}
    pages = {}
    for file in sorted(DOCS.rglob("*.md")):
        page = str(file.relative_to(DOCS))
        text = reference.site_links(file.read_text(encoding="utf-8"), page, known)
        for name in re.findall(r"<!-- result (\w+) -->", text):
            text = text.replace(f"<!-- result {name} -->", result_of(results[name], page))
        pages[page] = HEADERS.get(page, "") + text
    return pages


def result_of(study: StudyFile, here: str) -> str:
    """A study's plot and verdict for a page by hand, from its results."""
    where = f"[{study.title}]({relative(study.page, here)})"
    for scale, found in study.profiles.items():
        plots = [plot for plot in study.plots.get(scale, ()) if plot.stem == "depths"]
        drawn = [f"![{study.title}]({relative(f'plots/{study.name}/{scale}/{plot.name}', here)})" for plot in plots]
        said = f"{where}, scale {scale}, {found['date'][:10]}: {summary(found)}."
        return "\n\n".join([*drawn, said])
    return f"{where} has no results yet."


def gallery_pages(
    entries: Sequence[RecipeEntry], studies: Sequence[StudyFile], known: frozenset[str], out: Path
) -> dict[str, str]:
    """The pages of recipes and studies; their plots are drawn or copied."""
    pages = {"gallery/index.md": gallery.gallery_page(entries), "studies/index.md": gallery.studies_page(studies)}
    for study in studies:
        plots = {scale: [copied(plot, study, scale, out) for plot in files] for scale, files in study.plots.items()}
        pages[study.page] = gallery.study_page(study, known, plots)
    drawn = {place: relative(plot, "gallery/x.md") for place, plot in arm_plots(studies, out)}
    for entry in entries:
        pages[entry.page] = gallery.recipe_page(entry, known, drawn)
    return pages


def copied(plot: Path, study: StudyFile, scale: str, out: Path) -> str:
    """A study's plot, copied into the site."""
    place = f"plots/{study.name}/{scale}/{plot.name}"
    (out / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plot, out / place)
    return place


def arm_plots(studies: Sequence[StudyFile], out: Path) -> Iterator[tuple[tuple[str, str, str, str], str]]:
    """How every arm that was measured trained, all seeds, and its figures by depth, first seed."""
    for study in studies:
        for scale, found in study.profiles.items():
            for name, arm in found["arms"].items():
                folder = f"plots/{study.name}/{scale}/arms"
                if curves := gallery.curves_of(arm["seeds"]):
                    place = f"{folder}/{name}_training.svg"
                    plot_curves(curves, out / place, arm["label"])
                    yield (study.name, name, scale, "curve"), place
                seed, entry = next(iter(arm["seeds"].items()))
                place = f"{folder}/{name}.svg"
                named = {**entry["evaluation"], "run": f"{arm['label']}, seed {seed}"}
                plot_depths(named, out / place)
                yield (study.name, name, scale, "depths"), place


def reference_pages(
    entries: Sequence[RecipeEntry], schemas: dict[str, list[Schema]], studies: Sequence[StudyFile]
) -> Iterator[tuple[str, str]]:
    """The pages of kinds, components, commands, formats and outputs."""
    yield "reference/index.md", reference.kinds_page(schemas)
    recipe_page, study_page = "reference/recipe_format.md", "reference/study_format.md"
    formats = {name: f"{recipe_page}#{anchor(name)}" for name in format_sections()} | {"Sections": recipe_page}
    for name, kind in KINDS.items():
        yield f"reference/{name}/index.md", reference.kind_page(kind, schemas[name], ROOT)
        for schema in schemas[name]:
            yield component_place(name, schema.name), reference.component_page(schema, entries, formats, ROOT)
    yield "reference/commands/index.md", reference.commands_page(COMMANDS)
    import click

    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        yield command_place(name), reference.command_page(name, command)
    yield (
        recipe_page,
        reference.format_page("The recipe format", introductions.RECIPES, format_sections(), recipe_page, {}),
    )
    of_studies = read_sections(ROOT / "loopkit/studies/format.py")
    yield study_page, reference.format_page("The study format", introductions.STUDIES, of_studies, study_page, {})
    yield "reference/run_folder.md", reference.run_folder_page(ROOT / "loopkit/runs/folder.py")
    units: dict[str, str] = {}
    for study in studies:
        for found in study.profiles.values():
            runs = [run for arm in found["arms"].values() for run in arm["seeds"].values()]
            for run in runs:
                units |= run["evaluation"].get("units", {})
    yield "reference/python.md", introductions.PYTHON
    yield (
        "reference/evaluation_json.md",
        reference.evaluation_page(ROOT / "loopkit/evaluation/result.py", introductions.ROW, units),
    )


class Costs:
    """What recipes need, counted on models without memory, and kept from one build to the next.

    Args:
        file: Where counts are kept; they are those of one state of the source.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        digest = hashlib.sha256()
        for room in ("components", "model", "objective", "training", "recipe", "registry"):
            for source in sorted((ROOT / "loopkit" / room).rglob("*.py")):
                digest.update(source.read_bytes())
        self.state = digest.hexdigest()
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        self.counts: dict[str, Any] = kept.get("counts", {}) if kept.get("state") == self.state else {}

    def add(self, entry: RecipeEntry) -> RecipeEntry:
        """The entry with its cost."""
        from dataclasses import replace

        if entry.recipe.hash not in self.counts:
            from dataclasses import asdict

            self.counts[entry.recipe.hash] = asdict(cost_of(entry.recipe))
        return replace(entry, cost=Cost(**self.counts[entry.recipe.hash]))

    def save(self) -> None:
        """Keep the counts."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps({"state": self.state, "counts": self.counts}, indent=1), encoding="utf-8")


def cost_of(recipe: Recipe) -> Cost:
    """Parameters and FLOPs, as ``loopkit plan`` counts them."""
    from loopkit.cost.flops import StepFlops
    from loopkit.model import build_model, count_parameters
    from loopkit.objective import build_objective

    try:
        vocabulary = vocabulary_of(recipe)
    except (ValueError, OSError) as error:
        return Cost(why=str(error).splitlines()[0])
    schedule = recipe.train.schedule.build()
    most, length = schedule.bounds[1], recipe.data.length
    model = build_model(recipe.model, vocabulary=vocabulary, max_length=length, max_loops=most, device="meta")
    flops = StepFlops(model, build_objective(recipe.objective).supervision, length=length, max_loops=most)
    mean = max(round(schedule.mean), 1)
    backprop = mean if recipe.train.backprop == "all" else min(mean, recipe.train.backprop)
    per_token = flops.per_token(mean, backprop)
    tokens = recipe.train.tokens or (recipe.train.steps or 0) * recipe.train.batch * length
    why = "" if tokens else "the length of the training, which is said in epochs"
    return Cost(count_parameters(model).unique, per_token, tokens * per_token if tokens else None, why)


def vocabulary_of(recipe: Recipe) -> int:
    """The tokenizer's size as ``plan`` takes it; where the data decides it, from data that is made on the spot."""
    from loopkit.cost.plan import known_vocabulary

    try:
        return known_vocabulary(recipe)
    except ValueError as error:
        from loopkit.data import prepare

        try:
            return prepare(recipe.data, splits=("train",)).tokenizer.size
        except Exception:  # data that would have to be downloaded: the plan's own message says what is missing
            raise error from None


def menu_of(
    out: Path, entries: Sequence[RecipeEntry], studies: Sequence[StudyFile], schemas: dict[str, list[Schema]]
) -> list[Any]:
    """The site's menu."""
    there = {page.stem for page in (out / "guides").glob("*.md")} - {"index"}
    names = [name for name in GUIDES if name in there] + sorted(there.difference(GUIDES))
    components: list[Any] = ["reference/index.md"]
    for kind, listed in schemas.items():
        pages: list[Any] = [{schema.name: component_place(kind, schema.name)} for schema in listed]
        components.append({kind: [f"reference/{kind}/index.md", *pages]})
    return [
        {"Home": "index.md"},
        {"Guides": ["guides/index.md", *(f"guides/{name}.md" for name in names)]},
        {"Recipes": ["gallery/index.md", *({entry.name: entry.page} for entry in entries)]},
        {"Studies": ["studies/index.md", *({study.title: study.page} for study in studies)]},
        {"Components": components},
        {
            "Reference": [
                {"Commands": ["reference/commands/index.md", *({name: command_place(name)} for name in COMMANDS)]},
                "reference/recipe_format.md",
                "reference/study_format.md",
                "reference/run_folder.md",
                "reference/evaluation_json.md",
                "python.md",
                "reference/python.md",
            ]
        },
    ]


if __name__ == "__main__":
    start = time.perf_counter()
    problems = build()
    print(f"{len(list(OUT.rglob('*.md')))} pages in {OUT.relative_to(ROOT)}, {time.perf_counter() - start:.1f} s")
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))
