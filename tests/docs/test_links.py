"""Pages by hand as a checkout shows them: every link leads to a file or heading, and nothing is the site tool's alone.

The same links lead to pages on the site; ``test_build.py`` follows them there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.site.reference import site_links

LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)")
SITE_ONLY = {
    "settings on top": re.compile(r"\A---\n"),
    "an admonition": re.compile(r"^(!!!|\?\?\?)", re.MULTILINE),
    "a directive": re.compile(r"^:::", re.MULTILINE),
    "attributes": re.compile(r"\{:? *[#.][\w-]+[^}]*\}"),
    "a comment in front of text": re.compile(r"^<!--.*?--> *\S", re.MULTILINE),
}
"""What the site tool understands and a checkout shows as it is."""


def pages_by_hand(root: Path) -> list[Path]:
    """README and the other pages of the project's folder, the guides, and the pages of the plugins."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob("plugins/*/*.md")])


def without_fences(text: str) -> str:
    return re.sub(r"^( *)(`{3,}).*?^\1\2 *$", "", text, flags=re.DOTALL | re.MULTILINE)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", without_fences(text))


def headings(text: str) -> set[str]:
    """Anchors that a checkout gives to headings: lower case, spaces to dashes, other signs left out."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", without_fences(text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def dead_links(page: Path, root: Path) -> list[str]:
    dead = []
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        place, _, anchor = target.partition("#")
        file = page.parent / place if place else page
        if not file.exists() or not file.resolve().is_relative_to(root.resolve()):
            dead.append(target)
        elif anchor and (file.suffix != ".md" or anchor not in headings(file.read_text(encoding="utf-8"))):
            dead.append(f"{target} (no such heading)")
    return dead


def test_pages_by_hand_are_found(root: Path) -> None:
    names = {str(page.relative_to(root)) for page in pages_by_hand(root)}
    assert {"README.md", "CONTRIBUTING.md", "docs/python.md", "docs/guides/writing_a_plugin.md"} <= names
    assert "plugins/loopkit-lora/README.md" in names


def test_no_link_is_dead_in_a_checkout(root: Path) -> None:
    dead = {str(page.relative_to(root)): dead_links(page, root) for page in pages_by_hand(root)}
    assert {name: links for name, links in dead.items() if links} == {}


def test_nothing_is_for_the_site_alone(root: Path) -> None:
    found = [
        f"{page.relative_to(root)}: {what}"
        for page in pages_by_hand(root)
        for what, pattern in SITE_ONLY.items()
        if pattern.search(without_code(page.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_checker_finds_dead_links(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# A\n## B & c\n[x](b.md) [y](#b--c) [z](#gone) [out](../b.md) `[code](x.md)` [w](https://w)\n")
    assert dead_links(page, tmp_path) == ["b.md", "#gone (no such heading)", "../b.md"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[All](../../loopkit/components)", "[All](../reference/index.md)"),
        ("[`poisson`](../../loopkit/components/schedule/__init__.py)", "[`poisson`](../reference/schedule/poisson.md)"),
        ("[the kind](../../loopkit/components/schedule/__init__.py)", "[the kind](../reference/schedule/index.md)"),
        ("[`norms`](../../loopkit/components/probe/norms.py)", "[`norms`](../reference/probe/norms.md)"),
        ("[eval](../../loopkit/cli/eval.py)", "[eval](../reference/commands/eval.md)"),
        ("[mini](../../recipes/mini.yaml)", "[mini](../gallery/mini.md)"),
        ("[no page](../../loopkit/errors.py)", "no page"),
        ("[guide](exporting.md#a) [x](https://y)", "[guide](exporting.md#a) [x](https://y)"),
        ("```text\n[a](../../recipes/mini.yaml)\n```", "```text\n[a](../../recipes/mini.yaml)\n```"),
    ],
)
def test_source_files_become_pages_on_the_site(text: str, shown: str) -> None:
    known = {
        "reference/index.md",
        "reference/schedule/index.md",
        "reference/schedule/poisson.md",
        "reference/probe/index.md",
        "reference/probe/norms.md",
        "reference/commands/eval.md",
        "gallery/mini.md",
    }
    assert site_links(text, "guides/x.md", known) == shown
