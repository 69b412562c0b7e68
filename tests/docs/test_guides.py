"""The commands of the guides run in order, from an empty folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e import documented
from tests.e2e.commands import studies_here

pytestmark = pytest.mark.e2e


def covered_elsewhere(root: Path, names: set[str]) -> set[str]:
    """Return the guides that another test names and follows."""
    paths = [path for path in (root / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    texts = [path.read_text() for path in paths if path.name != "test_build.py"]
    return {name for name in names if any(f"{name}.md" in text for text in texts)}


@pytest.fixture(scope="module")
def followed(root: Path, builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which every guide was followed; a repeated command runs once."""
    folder = tmp_path_factory.mktemp("reader")
    names = {path.stem for path in (root / "docs/guides").glob("*.md")}
    names -= covered_elsewhere(root, names)
    done: set[str] = set()
    for name in [*(name for name in builder.GUIDES if name in names), *sorted(names.difference(builder.GUIDES))]:
        for block in documented.blocks(root / "docs/guides" / f"{name}.md"):
            if block.file:
                (folder / block.file).write_text(block.text)
            for command in documented.commands(block) if block.language == "bash" else ():
                if command not in done:
                    start = time.perf_counter()
                    with studies_here():
                        documented.run_here(command, folder)
                    print(f"{time.perf_counter() - start:5.1f} s  {command}")
                    done.add(command)
    assert len(done) > 10
    return folder


def test_quickstart_leaves_evaluation_and_report(followed: Path) -> None:
    run = followed / "runs/wikitext_44m_raw-smoke"
    results = [json.loads(path.read_text()) for path in (run / "eval").glob("*.json")]
    assert any([row["depth"] for row in result["depths"]] == list(range(1, 9)) for result in results)
    assert "## Evaluation on validation" in (run / "report.md").read_text()


def test_recipe_of_guide_was_trained(followed: Path) -> None:
    lines = (followed / "runs/mine/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert all(4 <= json.loads(line)["loops"] <= 8 for line in lines)


def test_study_of_guide_was_judged(followed: Path) -> None:
    results = json.loads((followed / "penalty.results.json").read_text())["profiles"]["smoke"]
    assert set(results["arms"]) == {"without", "with"}
    assert isinstance(results["claims"]["penalty_shortens"]["holds"], bool)


def test_error_of_guide_is_printed_by_loopkit(followed: Path, root: Path) -> None:
    (printed,) = [
        block.text for block in documented.blocks(root / "docs/guides/writing_a_recipe.md") if block.language == "text"
    ]
    from loopkit.recipe import RecipeError, load_recipe

    broken = followed / "broken" / "mine.yaml"
    broken.parent.mkdir()
    broken.write_text((followed / "mine.yaml").read_text().replace("max:", "maxx:"))
    with pytest.raises(RecipeError) as caught:
        load_recipe(broken)
    message = str(caught.value).replace(f"{broken.parent}/", "")
    assert message.strip() == printed.strip()
