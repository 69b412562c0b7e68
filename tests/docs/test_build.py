"""``docs/build.py`` writes a page for each recipe, study, component, kind and command, without dead links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from loopkit.cli.main import COMMANDS
from loopkit.recipe import load_recipe
from loopkit.registry.catalog import catalog
from loopkit.registry.kinds import KINDS

LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    text = re.sub(r"^( *)(`{3,}).*?^\1\2 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text: str) -> set[str]:
    """Collect the ids of a page: explicit ones, and those of headings."""
    ids = set(re.findall(r"\{[^}]*#([\w-]+)[^}]*\}", text))
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE):
        ids.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-"))
    return ids


def dead_links(folder: Path) -> list[str]:
    dead = []
    for page in sorted(folder.rglob("*.md")):
        for target in LINK.findall(without_code(page.read_text())):
            if target.startswith(("https://arxiv.org/", "https://github.com/")):
                continue
            place, _, anchor = target.partition("#")
            file = page if not place else page.parent / place.partition("?")[0]
            if not file.is_file():
                dead.append(f"{page.relative_to(folder)}: {target}")
            elif anchor and anchor not in anchors(file.read_text()):
                dead.append(f"{page.relative_to(folder)}: {target} (no such heading)")
    return dead


def test_every_recipe_and_study_has_a_page(pages: Path, root: Path) -> None:
    recipes = {path.stem for path in (root / "recipes").glob("*.yaml")}
    studies = {path.stem for path in (root / "recipes/studies").glob("*.yaml")}
    assert len(recipes) > 20
    assert {path.stem for path in (pages / "gallery").glob("*.md")} == recipes | {"index"}
    assert {path.stem for path in (pages / "studies").glob("*.md")} == studies | {"index"}


def test_every_recipe_has_a_card(pages: Path, root: Path) -> None:
    text = (pages / "gallery/index.md").read_text()
    cards = set(re.findall(r"^### \[.*?\]\((\w+)\.md\)", text, re.MULTILINE))
    assert cards == {path.stem for path in (root / "recipes").glob("*.yaml")}
    assert text.count("<article") == len(cards)


def test_every_kind_component_and_command_has_a_page(pages: Path) -> None:
    for kind in KINDS:
        names = {offer.name for offer in catalog(False).of(kind)}
        assert {path.stem for path in (pages / "reference" / kind).glob("*.md")} == names | {"index"}
    assert {path.stem for path in (pages / "reference/commands").glob("*.md")} == {*COMMANDS, "index"}


def test_no_link_is_dead(pages: Path) -> None:
    assert dead_links(pages) == []


def test_checker_finds_dead_links(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n[there](b.md#b) [gone](c.md) [no heading](b.md#c) `[code](x.md)`\n")
    (tmp_path / "b.md").write_text("# B\n")
    assert dead_links(tmp_path) == ["a.md: c.md", "a.md: b.md#c (no such heading)"]


def test_menu_lists_every_page_once(pages: Path) -> None:
    text = (pages.parent / "nav.yml").read_text()
    paths = re.findall(r"[\w/-]+\.md", text)
    assert len(paths) == len(set(paths))
    assert set(paths) == {str(path.relative_to(pages)) for path in pages.rglob("*.md")}
    assert list(yaml.safe_load(text)) == ["nav"]


def test_component_page_has_options_and_recipes(pages: Path) -> None:
    schema = catalog(False).get("readout", "alpha")
    text = (pages / "reference/readout/alpha.md").read_text()
    for option in schema.options:
        assert f"| `{option}` |" in text
    assert "a number >= 0 and <= 1" in text.replace("&gt;", ">").replace("&lt;", "<")
    assert "```text\ns = rms(h)" in text
    assert f"`loopkit/components/readout.py:{schema.line}`" in text
    assert "https://arxiv.org/abs/2606.24898" in text
    assert "../../gallery/wikitext_44m_alpha.md" in text
    assert "wikitext_44m_raw.md" not in text


def test_recipe_page_has_changes_and_results(pages: Path, root: Path) -> None:
    text = (pages / "gallery/wikitext_44m_norm_penalty.md").read_text()
    assert "| `objective.regularizers.norm_penalty` | absent |" in text
    assert "loopkit train wikitext_44m_norm_penalty --profile mini" in text
    assert "readout_blind_spot" in text
    assert "![Training loss by optimizer step, in nats per token: " in text
    resolved = load_recipe("wikitext_44m_norm_penalty").to_yaml()
    assert all(f"    {line}" in text for line in resolved.splitlines())


def test_recipe_without_results_is_marked(pages: Path) -> None:
    without = [page.read_text() for page in (pages / "gallery").glob("wikitext_129m_*.md")]
    assert without
    assert all("No study runs this recipe, so there are no results." in text for text in without)


def test_generator_imports_no_torch(root: Path) -> None:
    code = "import sys, docs.site.gallery, docs.site.reference; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


def test_no_link_leaves_the_site(pages: Path) -> None:
    """All links to source files are replaced."""
    for page in pages.rglob("*.md"):
        for target in LINK.findall(without_code(page.read_text())):
            if not target.startswith("https://"):
                file = (page.parent / target.partition("#")[0].partition("?")[0]).resolve()
                assert file.is_relative_to(pages.resolve()), f"{page}: {target}"


@pytest.mark.e2e
def test_mkdocs_builds_without_warnings(builder: ModuleType, pages: Path, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("material", reason="MkDocs is not installed: pip install 'loopkit[docs]'")
    pytest.importorskip("mkdocstrings", reason="MkDocs is not installed: pip install 'loopkit[docs]'")
    settings = (root / "mkdocs.yml").read_text()
    settings = settings.replace("INHERIT: build/nav.yml", f"INHERIT: {pages.parent / 'nav.yml'}")
    settings = settings.replace("docs_dir: build/docs", f"docs_dir: {pages}").replace("[.]", f"[{root}]")
    (tmp_path / "mkdocs.yml").write_text(settings)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    home = (tmp_path / "site/index.html").read_text()
    assert not re.findall(r'(?:src|href)="(https?://(?!arxiv|www\.mkdocs|squidfunk)[^"]+\.(?:js|css|woff2?))"', home)
