"""Links of the pages by hand: they lead to source files, as in a checkout, and on the site to the page of each."""

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
"""Files and folders of the project, and the pages generated from them."""

PATTERNS = (
    (r"loopkit/components/(\w+)(?:\.py|/\w+\.py)?", r"reference/\1/index.md"),
    (r"loopkit/loop/(?:trajectory|looped_model|batch|loops|step|noise)\.py", "reference/python.md"),
    (r"loopkit/cli/(\w+?)_?\.py", r"reference/commands/\1.md"),
    (r"recipes/(\w+)\.yaml", r"gallery/\1.md"),
    (r"recipes/studies/(\w+)\.yaml", r"studies/\1.md"),
)
"""The same for files of which there are many."""

LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\]\\]|\\.)*)\]\((?P<target>[^)\s#:]+)(?:#[\w-]+)?\)")
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)


def site_links(text: str, page: str, known: Container[str]) -> str:
    """A page by hand with its links to the project's files replaced by links to pages.

    A link to a file without a page becomes its text. Links between pages by hand and blocks of code stay as they are.

    Args:
        text: The page, as Markdown.
        page: Its path below ``docs/``.
        known: Every generated page.
    """
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [_replaced(text[end : fence.start()], page, known), fence[0]]
        end = fence.end()
    return "".join([*parts, _replaced(text[end:], page, known)])


def _replaced(text: str, page: str, known: Container[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), match["target"]))
        if file.startswith("docs/"):
            return match[0]
        target = page_of(file, match["text"], known)
        return f"[{match['text']}]({relative(target, page)})" if target else match["text"]

    return LINK.sub(replace, text)


def page_of(file: str, text: str, known: Container[str]) -> str | None:
    """The page generated from a file of the project; where several are, that of the component that the link names.

    Args:
        file: Path from the root of the project.
        text: What the link shows, such as `` `poisson` ``.
        known: Every generated page.
    """
    page = PAGES.get(file)
    for pattern, place in PATTERNS if page is None else ():
        if match := re.fullmatch(pattern, file):
            page = match.expand(place)
            break
    if page is None or page not in known:
        return None
    component = page.replace("index.md", f"{text.strip('`')}.md")
    return component if component in known else page
