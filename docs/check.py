"""Check the built site in Chromium: console, width, filter, search, copy buttons, accessibility; take screenshots.

    python docs/build.py && mkdocs build --strict && python docs/check.py --axe node_modules/axe-core/axe.min.js

Needs ``chromium`` and ``pip install playwright``; ``npm install axe-core`` for the accessibility check. Screenshots go
to ``build/screenshots``. The exit code is 1 if a check fails, and 0 with a message if Chromium is not installed.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SITE, SCREENSHOTS = ROOT / "site", ROOT / "build" / "screenshots"
WIDTHS = (360, 768, 1440)
REPORTED_IMPACTS = ("serious", "critical")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core; without it, accessibility is not checked")
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--schemes", nargs="*", default=("light", "dark"))
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("skipped: chromium is not installed")
        return 0
    if not (SITE / "index.html").is_file():
        print("the site is not built; run: python docs/build.py && mkdocs build --strict")
        return 1
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("skipped: playwright is not installed; run: pip install playwright")
        return 0

    problems: list[str] = []
    with serve(SITE) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in options.schemes:
            for width in options.widths:
                problems += check_pages(browser, address, scheme, width, options.axe)
        problems += check_controls(browser, address)
        browser.close()
    print("\n".join(problems) if problems else "all checks passed")
    return bool(problems)


def pages() -> dict[str, str]:
    """List one page of each sort, with an evaluated and a not evaluated recipe if there are any."""
    evaluated = sorted(path.parent for path in SITE.glob("gallery/*/index.html") if ">Measured, " in path.read_text())
    not_evaluated = sorted(path.parent for path in SITE.glob("gallery/*/index.html") if path.parent not in evaluated)
    studies = sorted(path.parent for path in SITE.glob("studies/*/index.html"))
    folders = {"home": SITE, "gallery": SITE / "gallery", "component": SITE / "reference/readout/alpha"}
    folders |= {"recipe": evaluated[0]} if evaluated else {}
    folders |= {"recipe_not_evaluated": not_evaluated[0]} if not_evaluated else {}
    folders |= {f"study_{number}": folder for number, folder in enumerate(studies[:2])}
    folders |= {
        "guide": SITE / "guides/quickstart",
        "python": SITE / "python",
        "command": SITE / "reference/commands/eval",
    }
    return {name: f"{folder.relative_to(SITE)}/".removeprefix("./") for name, folder in folders.items()}


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on a free local port."""

    class QuietHandler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def check_pages(browser: Any, address: str, scheme: str, width: int, axe: Path | None) -> list[str]:
    """Open every sort of page at one width; report console messages, external requests, overflow and accessibility."""
    problems: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.on(
        "console",
        lambda message: message.type in ("error", "warning") and problems.append(f"{where}: console: {message.text}"),
    )
    page.on("pageerror", lambda error: problems.append(f"{where}: {error}"))
    page.on(
        "request",
        lambda request: _is_external(request.url, address) and problems.append(f"{where}: requests {request.url}"),
    )
    for name, path in pages().items():
        where = f"{name} at {width}, {scheme}"
        page.goto(address + path)
        page.wait_for_load_state("networkidle")
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if overflow > 0:
            problems.append(f"{where}: {overflow} pixels too wide")
        if axe is not None:
            problems += [f"{where}: {finding}" for finding in accessibility(page, axe)]
        page.wait_for_timeout(300)  # menus fade in
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
    context.close()
    return problems


def _is_external(url: str, address: str) -> bool:
    return url.startswith(("http:", "https:")) and not url.startswith(address)


def accessibility(page: Any, axe: Path) -> Iterator[str]:
    """Report serious and critical findings of axe-core."""
    page.add_script_tag(path=str(axe))
    for finding in page.evaluate("axe.run().then(result => result.violations)"):
        if finding["impact"] in REPORTED_IMPACTS:
            nodes = [" ".join(node["target"][0].split())[:90] for node in finding["nodes"]]
            yield f"axe {finding['impact']} {finding['id']} at {len(nodes)}: {'; '.join(nodes[:4])}"


def check_controls(browser: Any, address: str) -> Iterator[str]:
    """Test the filter with the keyboard, the search, and a copy button."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.goto(address + "gallery/")
    cards, shown = page.locator(".lk-card"), page.locator(".lk-card:visible")
    total = cards.count()
    component = cards.nth(0).get_attribute("data-components").split()[0]
    page.locator("[name=q]").focus()
    page.keyboard.type("penalty norm")
    if not 0 < shown.count() < total:
        yield f"filter: 'penalty norm' shows {shown.count()} of {total} cards"
    page.keyboard.type(" nothing of the sort")
    if shown.count() or "no recipe matches" not in page.locator("#lk-count").inner_text():
        yield "filter: unmatched words leave cards"
    page.get_by_role("button", name="Show all").press("Enter")
    page.wait_for_timeout(100)
    if shown.count() != total:
        yield f"filter: after 'Show all' {shown.count()} of {total} cards are shown"
    for name in ("kind", "component", "paper", "status"):
        value = (
            component.split("/")[0]
            if name == "kind"
            else page.locator(f"[name={name}] option").last.get_attribute("value")
        )
        page.goto(f"{address}gallery/?{name}={value}")
        if not 0 < shown.count() <= total:
            yield f"filter: {name}={value} shows {shown.count()} of {total} cards"
    page.goto(address + pages().get("recipe", pages().get("recipe_not_evaluated", "")))
    page.locator(".md-clipboard, .md-code__button[data-md-type=copy]").first.click()
    page.wait_for_timeout(300)
    copied = page.evaluate("navigator.clipboard.readText()")
    if not copied.startswith("loopkit train "):
        yield f"copy button: copied {copied!r}"
    page.goto(address)
    page.keyboard.press("s")  # opens the search
    page.keyboard.type("radial fraction")
    try:
        page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
    except Exception:
        yield "search: no result for 'radial fraction'"
    context.close()


if __name__ == "__main__":
    sys.exit(main())
