"""Write the pages of the site as Markdown into ``build/docs``, from recipes, results, source text and ``docs/``.

    python docs/build.py && mkdocs build --strict

Nothing is downloaded. Only ``mkdocs.yml`` depends on MkDocs; the pages are Markdown.
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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # use the package of this checkout, even if another one is installed
os.environ.setdefault("LOOPKIT_CACHE", str(ROOT / "build" / "cache"))
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import yaml  # noqa: E402

from docs.site import gallery, reference  # noqa: E402
from docs.site.gallery import Cost, RecipeEntry, StudyFile  # noqa: E402
from docs.site.reference import introductions  # noqa: E402
from docs.site.reference.command_page import command_path  # noqa: E402
from docs.site.reference.component_page import component_path  # noqa: E402
from docs.site.reference.format_page import anchor  # noqa: E402
from loopkit.cli.main import COMMANDS, main  # noqa: E402
from loopkit.recipe import Recipe  # noqa: E402
from loopkit.recipe.recipe import format_sections  # noqa: E402
from loopkit.registry.catalog import catalog  # noqa: E402
from loopkit.registry.kinds import KINDS  # noqa: E402
from loopkit.registry.schema import Schema  # noqa: E402
from loopkit.registry.source import read_sections  # noqa: E402
from loopkit.report.pages.markdown import relative  # noqa: E402
from loopkit.report.plots.curve import plot_curves  # noqa: E402
from loopkit.report.plots.depth import plot_depths  # noqa: E402
from loopkit.report.tables.study import summary  # noqa: E402

DOCS, OUT = ROOT / "docs", ROOT / "build" / "docs"
NAV, COSTS = ROOT / "build" / "nav.yml", ROOT / "build" / "costs.json"
GUIDES = (
    "quickstart",
    "writing_a_recipe",
    "choosing_a_schedule",
    "reading_an_audit",
    "evaluating_at_every_depth",
    "averaging_weights",
    "training_in_stages",
    "training_on_many_gpus",
    "reproducing_the_papers",
    "adding_a_study",
    "writing_a_plugin",
)
"""Order of guides in the menu; all others follow by name."""

HEADERS = {"index.md": "---\ntitle: loopkit\nhide: [navigation, toc]\n---\n"}
"""MkDocs settings of single pages, which a checkout would display as a table."""


def build(out: Path = OUT, nav: Path = NAV) -> list[str]:
    """Write every page.

    Args:
        out: Folder of the pages; its content is replaced.
        nav: File of the menu, which ``mkdocs.yml`` includes.

    Returns:
        Errors of recipes; their pages are written too.
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
    paths = frozenset([*pages, *(entry.page for entry in entries), *(study.page for study in studies)])
    pages |= gallery_pages(entries, studies, paths, out)
    pages |= handwritten_pages(studies, frozenset(pages))
    for page, text in pages.items():
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        (out / page).write_text(text, encoding="utf-8")
    menu = {"nav": build_menu(out, entries, studies, schemas)}
    nav.write_text(yaml.safe_dump(menu, sort_keys=False), encoding="utf-8")
    return [f"{entry.path.name}: {problem}" for entry in entries for problem in entry.problems]


def handwritten_pages(studies: Sequence[StudyFile], paths: frozenset[str]) -> dict[str, str]:
    """Read the pages of ``docs/``, insert results, and replace links to source files by links to their pages."""
    results = {study.name: study for study in studies}
    pages = {}
    for file in sorted(DOCS.rglob("*.md")):
        page = str(file.relative_to(DOCS))
        text = reference.site_links(file.read_text(encoding="utf-8"), page, paths)
        for name in re.findall(r"<!-- result (\w+) -->", text):
            text = text.replace(f"<!-- result {name} -->", format_result(results[name], page))
        pages[page] = HEADERS.get(page, "") + text
    return pages


def format_result(study: StudyFile, here: str) -> str:
    """Format the plot and the verdict of a study at its largest scale."""
    title = f"[{study.title}]({relative(study.page, here)})"
    for scale, results in study.profiles.items():
        plots = [plot for plot in study.plots.get(scale, ()) if plot.stem == "depths"]
        images = [f"![{study.title}]({relative(f'plots/{study.name}/{scale}/{plot.name}', here)})" for plot in plots]
        verdict = f"{title}, scale {scale}, {results['date'][:10]}: {summary(results)}."
        return "\n\n".join([*images, verdict])
    return f"{title} has no results yet."


def gallery_pages(
    entries: Sequence[RecipeEntry], studies: Sequence[StudyFile], paths: frozenset[str], out: Path
) -> dict[str, str]:
    """Write the pages of recipes and studies; draw or copy their plots."""
    pages = {"gallery/index.md": gallery.gallery_page(entries), "studies/index.md": gallery.studies_page(studies)}
    for study in studies:
        plots = {scale: [copy_plot(plot, study, scale, out) for plot in files] for scale, files in study.plots.items()}
        pages[study.page] = gallery.study_page(study, paths, plots)
    recipe_plots = {key: relative(plot, "gallery/x.md") for key, plot in draw_arms(studies, out)}
    for entry in entries:
        pages[entry.page] = gallery.recipe_page(entry, paths, recipe_plots)
    return pages


def copy_plot(plot: Path, study: StudyFile, scale: str, out: Path) -> str:
    """Copy a plot of a study into the site and return its path."""
    path = f"plots/{study.name}/{scale}/{plot.name}"
    (out / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plot, out / path)
    return path


def draw_arms(studies: Sequence[StudyFile], out: Path) -> Iterator[tuple[tuple[str, str, str, str], str]]:
    """Draw the training curves of all seeds and the metrics by depth of the first seed, for every evaluated arm."""
    for study in studies:
        for scale, results in study.profiles.items():
            for name, arm in results["arms"].items():
                folder = f"plots/{study.name}/{scale}/arms"
                if curves := gallery.curves_of(arm["seeds"]):
                    path = f"{folder}/{name}_training.svg"
                    plot_curves(curves, out / path, arm["label"])
                    yield (study.name, name, scale, "curve"), path
                seed, entry = next(iter(arm["seeds"].items()))
                path = f"{folder}/{name}.svg"
                evaluation = {**entry["evaluation"], "run": f"{arm['label']}, seed {seed}"}
                plot_depths(evaluation, out / path)
                yield (study.name, name, scale, "depths"), path


def reference_pages(
    entries: Sequence[RecipeEntry], schemas: dict[str, list[Schema]], studies: Sequence[StudyFile]
) -> Iterator[tuple[str, str]]:
    """Write the pages of kinds, components, commands, formats and outputs."""
    yield "reference/index.md", reference.kinds_page(schemas)
    recipe_page, study_page = "reference/recipe_format.md", "reference/study_format.md"
    formats = {name: f"{recipe_page}#{anchor(name)}" for name in format_sections()} | {"Sections": recipe_page}
    for name, kind in KINDS.items():
        yield f"reference/{name}/index.md", reference.kind_page(kind, schemas[name], ROOT)
        for schema in schemas[name]:
            yield component_path(name, schema.name), reference.component_page(schema, entries, formats, ROOT)
    yield "reference/commands/index.md", reference.commands_page(COMMANDS)
    import click

    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        yield command_path(name), reference.command_page(name, command)
    yield (
        recipe_page,
        reference.format_page("The recipe format", introductions.RECIPES, format_sections(), recipe_page),
    )
    study_sections = read_sections(ROOT / "loopkit/studies/format.py")
    yield study_page, reference.format_page("The study format", introductions.STUDIES, study_sections, study_page)
    yield "reference/run_folder.md", reference.run_folder_page(ROOT / "loopkit/runs/folder.py")
    units: dict[str, str] = {}
    for study in studies:
        for results in study.profiles.values():
            for run in [run for arm in results["arms"].values() for run in arm["seeds"].values()]:
                units |= run["evaluation"].get("units", {})
    yield "reference/python.md", introductions.PYTHON
    yield (
        "reference/evaluation_json.md",
        reference.evaluation_page(ROOT / "loopkit/evaluation/result.py", introductions.ROW, units),
    )


class Costs:
    """Costs of recipes, computed on meta tensors and cached between builds.

    Args:
        file: The cache; it is valid for one state of the source.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        digest = hashlib.sha256()
        for package in ("components", "cost", "model", "recipe", "registry"):
            for source in sorted((ROOT / "loopkit" / package).rglob("*.py")):
                digest.update(source.read_bytes())
        self.state = digest.hexdigest()
        cache = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        self.costs: dict[str, Any] = cache.get("costs", {}) if cache.get("state") == self.state else {}

    def add(self, entry: RecipeEntry) -> RecipeEntry:
        """Return the entry with its cost."""
        if entry.recipe.hash not in self.costs:
            self.costs[entry.recipe.hash] = asdict(compute_cost(entry.recipe))
        return replace(entry, cost=Cost(**self.costs[entry.recipe.hash]))

    def save(self) -> None:
        """Write the cache."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps({"state": self.state, "costs": self.costs}, indent=1), encoding="utf-8")


def compute_cost(recipe: Recipe) -> Cost:
    """Compute parameters and FLOPs as ``loopkit plan`` does."""
    from loopkit.cost.flops import StepFlops
    from loopkit.model import build_model, count_parameters
    from loopkit.objective import build_objective

    try:
        vocabulary = find_vocabulary(recipe)
    except (ValueError, OSError) as error:
        return Cost(unknown=str(error).splitlines()[0])
    schedule = recipe.train.schedule.build()
    max_loops, length = schedule.bounds[1], recipe.data.length
    model = build_model(recipe.model, vocabulary=vocabulary, max_length=length, max_loops=max_loops, device="meta")
    flops = StepFlops(model, build_objective(recipe.objective).supervision, length=length, max_loops=max_loops)
    mean = max(round(schedule.mean), 1)
    backprop = mean if recipe.train.backprop == "all" else min(mean, recipe.train.backprop)
    per_token = flops.per_token(mean, backprop)
    tokens = recipe.train.tokens or (recipe.train.steps or 0) * recipe.train.batch * length
    unknown = "" if tokens else "training tokens: unknown until the dataset is read (the recipe sets epochs)"
    return Cost(count_parameters(model).unique, per_token, tokens * per_token if tokens else None, unknown)


def find_vocabulary(recipe: Recipe) -> int:
    """Return the size of the tokenizer as ``plan`` does, or prepare the data if the size depends on it."""
    from loopkit.cost.plan import known_vocabulary

    try:
        return known_vocabulary(recipe)
    except ValueError as error:
        from loopkit.data import prepare

        try:
            return prepare(recipe.data, splits=("train",)).tokenizer.size
        except Exception:  # the data would have to be downloaded; the error of the plan names what is missing
            raise error from None


def build_menu(
    out: Path, entries: Sequence[RecipeEntry], studies: Sequence[StudyFile], schemas: dict[str, list[Schema]]
) -> list[Any]:
    """Build the menu of the site."""
    guides = {page.stem for page in (out / "guides").glob("*.md")} - {"index"}
    names = [name for name in GUIDES if name in guides] + sorted(guides.difference(GUIDES))
    components: list[Any] = ["reference/index.md"]
    for kind, kind_schemas in schemas.items():
        pages: list[Any] = [{schema.name: component_path(kind, schema.name)} for schema in kind_schemas]
        components.append({kind: [f"reference/{kind}/index.md", *pages]})
    return [
        {"Home": "index.md"},
        {"Guides": ["guides/index.md", *(f"guides/{name}.md" for name in names)]},
        {"Recipes": ["gallery/index.md", *({entry.name: entry.page} for entry in entries)]},
        {"Studies": ["studies/index.md", *({study.title: study.page} for study in studies)]},
        {"Components": components},
        {
            "Reference": [
                {"Commands": ["reference/commands/index.md", *({name: command_path(name)} for name in COMMANDS)]},
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
