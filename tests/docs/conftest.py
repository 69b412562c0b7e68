"""The pages of the site, built once for all tests, without costs of recipes."""

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
    """The folder of generated pages, without costs, which need torch."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "compute_cost", lambda recipe: Cost(unknown="not computed here"))
        patch.setattr(builder, "plot_depths", _no_plot)
        patch.setattr(builder, "plot_curves", _no_plot)
        patch.setattr(builder, "COSTS", folder / "costs.json")
        assert builder.build(folder / "docs", folder / "nav.yml") == []
    return folder / "docs"


def _no_plot(result: object, path: Path, name: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
