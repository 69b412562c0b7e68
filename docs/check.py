"""Look at the built site in Chromium: console, width, filter, search, copying, accessibility, pictures.

    python docs/build.py && mkdocs build --strict && python docs/check.py --axe node_modules/axe-core/axe.min.js

Needs ``chromium`` and ``pip install playwright``; ``npm install axe-core`` for the accessibility check. Pictures go to
``build/pictures``. Exit code 1 if anything is wrong, 0 with a word if there is no Chromium.
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
SITE, PICTURES = ROOT / "site", ROOT / "build" / "pictures"
WIDTHS = (360, 768, 1440)
GRAVE = ("serious", "critical")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core; without it accessibility is not checked")
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--schemes", nargs="*", default=("light", "dark"))
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no chromium on this machine: nothing was looked at")
        return 0
    if not (SITE / "index.html").is_file():
        print("there is no site: python docs/build.py && mkdocs build --strict")
        return 1
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("pip install playwright: nothing was looked at")
        return 0

    found: list[str] = []
    with served(SITE) as address, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in given.schemes:
            for width in given.widths:
                found += look(browser, address, scheme, width, given.axe)
        found += act(browser, address)
        browser.close()
    print("\n".join(found) if found else "nothing is wrong")
    return bool(found)


def pages() -> dict[str, str]:
    """One page of each sort; a recipe and a component that have been measured and used, where there are any."""
    measured = sorted(path.parent for path in SITE.glob("gallery/*/index.html") if ">Measured, " in path.read_text())
    others = sorted(path.parent for path in SITE.glob("gallery/*/index.html") if path.parent not in measured)
    studies = sorted(path.parent for path in SITE.glob("studies/*/index.html"))
    wanted = {"home": SITE, "gallery": SITE / "gallery", "component": SITE / "reference/readout/alpha"}
    wanted |= {"recipe": measured[0]} if measured else {}
    wanted |= {"recipe_unmeasured": others[0]} if others else {}
    wanted |= {f"study_{number}": folder for number, folder in enumerate(studies[:2])}
    wanted |= {
        "guide": SITE / "guides/quickstart",
        "python": SITE / "python",
        "command": SITE / "reference/commands/eval",
    }
    return {name: f"{folder.relative_to(SITE)}/".removeprefix("./") for name, folder in wanted.items()}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The site on a port of this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def look(browser: Any, address: str, scheme: str, width: int, axe: Path | None) -> list[str]:
    """Open every sort of page at one width: what the console says, what is asked of other hosts, what is too wide."""
    found: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.on(
        "console", lambda said: said.type in ("error", "warning") and found.append(f"{where}: console: {said.text}")
    )
    page.on("pageerror", lambda error: found.append(f"{where}: {error}"))
    page.on("request", lambda asked: _foreign(asked.url, address) and found.append(f"{where}: asks {asked.url}"))
    for name, path in pages().items():
        where = f"{name} at {width}, {scheme}"
        page.goto(address + path)
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            found.append(f"{where}: {wide} pixels too wide")
        if axe is not None:
            found += [f"{where}: {finding}" for finding in accessibility(page, axe)]
        page.wait_for_timeout(300)  # menus fade in
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)
    context.close()
    return found


def _foreign(url: str, address: str) -> bool:
    return url.startswith(("http:", "https:")) and not url.startswith(address)


def accessibility(page: Any, axe: Path) -> Iterator[str]:
    """Serious and critical findings of axe-core."""
    page.add_script_tag(path=str(axe))
    for finding in page.evaluate("axe.run().then(result => result.violations)"):
        if finding["impact"] in GRAVE:
            nodes = [" ".join(node["target"][0].split())[:90] for node in finding["nodes"]]
            yield f"axe {finding['impact']} {finding['id']} at {len(nodes)}: {'; '.join(nodes[:4])}"


def act(browser: Any, address: str) -> Iterator[str]:
    """Use the filter with the keyboard, the search, and a copy button."""
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
    if shown.count() or "nothing fits" not in page.locator("#lk-count").inner_text():
        yield "filter: words that stand nowhere leave cards"
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
    page.goto(address + pages().get("recipe", pages().get("recipe_unmeasured", "")))
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
        yield "search: nothing is found for 'radial fraction'"
    context.close()


if __name__ == "__main__":
    sys.exit(main())
