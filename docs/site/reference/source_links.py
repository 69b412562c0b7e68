"""Replace links to source files, which work in a checkout, by links to the pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container

from loopkit.report.pages.markdown import relative

PAGES = {
    "loopkit/components": "reference/index.md",
    "loopkit/cli": "reference/commands/index.md",
    "loopkit/recipe/format.py": "reference/recipe_format.md",
    "loopkit/studies/format.py": "reference/study_format.md",
    "loopkit/runs/folder.py": "reference/run_folder.md",
    "loopkit/evaluation/result.py": "reference/evaluation_json.md",
    "loopkit/api.py": "reference/python.md",
    "recipes": "gallery/index.md",
    "recipes/studies": "studies/index.md",
}
"""Pages generated from files and folders of the project."""

PATTERNS = (
    (r"loopkit/components/(\w+)(?:\.py|/\w+\.py)?", r"reference/\1/index.md"),
    (r"loopkit/loop/(?:trajectory|looped_model|batch|loops|step|noise)\.py", "reference/python.md"),
    (r"loopkit/cli/(\w+?)_?\.py", r"reference/commands/\1.md"),
    (r"recipes/(\w+)\.yaml", r"gallery/\1.md"),
    (r"recipes/studies/(\w+)\.yaml", r"studies/\1.md"),
)
"""Patterns of files and their pages."""

LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\]\\]|\\.)*)\]\((?P<target>[^)\s#:]+)(?:#[\w-]+)?\)")
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)


def site_links(text: str, page: str, pages: Container[str]) -> str:
    """Replace links to files of the project by links to the pages generated from them.

    A link to a file without a page becomes plain text. Links between handwritten pages and code blocks are unchanged.

    Args:
        text: The page, as Markdown.
        page: Its path below ``docs/``.
        pages: Paths of all generated pages.
    """
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [_replace_links(text[end : fence.start()], page, pages), fence[0]]
        end = fence.end()
    return "".join([*parts, _replace_links(text[end:], page, pages)])


def _replace_links(text: str, page: str, pages: Container[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), match["target"]))
        if file.startswith("docs/"):
            return match[0]
        target = find_page(file, match["text"], pages)
        return f"[{match['text']}]({relative(target, page)})" if target else match["text"]

    return LINK.sub(replace, text)


def find_page(file: str, text: str, pages: Container[str]) -> str | None:
    """Return the page generated from a file of the project; of several, that of the component in the link text.

    Args:
        file: Path from the root of the project.
        text: Text of the link, such as `` `poisson` ``.
        pages: Paths of all generated pages.
    """
    page = PAGES.get(file)
    for pattern, template in PATTERNS if page is None else ():
        if match := re.fullmatch(pattern, file):
            page = match.expand(template)
            break
    if page is None or page not in pages:
        return None
    component = page.replace("index.md", f"{text.strip('`')}.md")
    return component if component in pages else page
