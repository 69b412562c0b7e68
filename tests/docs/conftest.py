"""The site's pages, built once for all tests, without counting what recipes cost."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from docs.site.gallery import Cost


@pytest.fixture(scope="session")
def builder(root: Path) -> ModuleType:
    """``docs/build.py`` as a module."""
    spec = importlib.util.spec_from_file_location("docs_build", root / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pages(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of generated pages; costs, which need torch, have tests of their own."""
    place = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "cost_of", lambda recipe: Cost(why="not counted here"))
        patch.setattr(builder, "plot_depths", _no_plot)
        patch.setattr(builder, "plot_curves", _no_plot)
        patch.setattr(builder, "COSTS", place / "costs.json")
        assert builder.build(place / "docs", place / "nav.yml") == []
    return place / "docs"


def _no_plot(result: object, path: Path, name: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
