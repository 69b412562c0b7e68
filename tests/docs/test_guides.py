"""The commands of the guides, run as a reader would: in their order, from an empty folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e import documented

pytestmark = pytest.mark.e2e


def with_tests_of_their_own(root: Path, names: set[str]) -> set[str]:
    """Guides that another test names, which then follows them."""
    others = [path for path in (root / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    texts = [path.read_text() for path in others if path.name != "test_build.py"]
    return {name for name in names if any(f"{name}.md" in text for text in texts)}


@pytest.fixture(scope="module")
def followed(root: Path, builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has followed every guide; a command that stands in two is run once."""
    place = tmp_path_factory.mktemp("reader")
    names = {path.stem for path in (root / "docs/guides").glob("*.md")}
    names -= with_tests_of_their_own(root, names)
    done: set[str] = set()
    for name in [*(name for name in builder.GUIDES if name in names), *sorted(names.difference(builder.GUIDES))]:
        for block in documented.blocks(root / "docs/guides" / f"{name}.md"):
            if block.file:
                (place / block.file).write_text(block.text)
            for command in documented.commands(block) if block.language == "bash" else ():
                if command not in done:
                    start = time.perf_counter()
                    documented.run_here(command, place)
                    print(f"{time.perf_counter() - start:5.1f} s  {command}")
                    done.add(command)
    assert len(done) > 10
    return place


def test_the_quickstart_leaves_a_run_with_its_evaluation_and_report(followed: Path) -> None:
    run = followed / "runs/wikitext_44m_raw-smoke"
    results = [json.loads(path.read_text()) for path in (run / "eval").glob("*.json")]
    assert any([row["depth"] for row in result["depths"]] == list(range(1, 9)) for result in results)
    assert "## Evaluation on validation" in (run / "report.md").read_text()


def test_the_recipe_of_the_guide_was_trained(followed: Path) -> None:
    lines = (followed / "runs/mine/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert all(4 <= json.loads(line)["loops"] <= 8 for line in lines)


def test_the_study_of_the_guide_was_judged(followed: Path) -> None:
    found = json.loads((followed / "penalty.results.json").read_text())["profiles"]["smoke"]
    assert set(found["arms"]) == {"without", "with"}
    assert isinstance(found["claims"]["penalty_shortens"]["holds"], bool)


def test_the_mistake_of_the_guide_reads_as_printed(followed: Path, root: Path) -> None:
    (printed,) = [
        block.text for block in documented.blocks(root / "docs/guides/writing_a_recipe.md") if block.language == "text"
    ]
    from loopkit.recipe import RecipeError, load_recipe

    broken = followed / "broken" / "mine.yaml"
    broken.parent.mkdir()
    broken.write_text((followed / "mine.yaml").read_text().replace("max:", "maxx:"))
    with pytest.raises(RecipeError) as caught:
        load_recipe(broken)
    said = str(caught.value).replace(f"{broken.parent}/", "")
    assert said.strip() == printed.strip()
