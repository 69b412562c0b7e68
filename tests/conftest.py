"""What every test may ask for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# the tensors of tests are tiny: threads cost more than they bring, and fight each other where cores are shared
os.environ.setdefault("OMP_NUM_THREADS", "1")

# what a terminal, a launcher or a user's own settings leave in the environment is no part of a test
TERMINAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE")
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
for name in (*TERMINAL, *LAUNCHER, "PYTEST_ADDOPTS", "WANDB_MODE"):
    os.environ.pop(name, None)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """Numbers of the reference implementations; ``tests/golden/README.md`` describes them."""
    return ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def shared() -> Path:
    """A folder beside the checkout with ``data/``: real text and problems whose licences differ from the project's."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("the folder with real data is not beside this checkout")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _trackers_keep_to_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where Trackio is installed, its database is not the user's, and no tracker reads the user's account."""
    folder = tmp_path_factory.mktemp("trackers")
    places = {"TRACKIO_DIR": "trackio", "WANDB_CONFIG_DIR": "wandb", "WANDB_CACHE_DIR": "wandb"}
    os.environ |= {name: str(folder / place) for name, place in places.items()}


@pytest.fixture(autouse=True)
def _torchs_own_linear() -> Iterator[None]:
    """Put back ``F.linear``, which DeepSpeed replaces for the whole process when ZeRO-3 begins."""
    functional = sys.modules.get("torch.nn.functional")
    before = getattr(functional, "linear", None)
    yield
    if functional is not None:
        functional.linear = before


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist hand out modules in the order of collection, which otherwise starts with those of most tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


LONG = ("test_plugins", "test_ranks", "test_plugin_guide", "test_every_recipe", "test_every_template", "test_guides")
"""Modules that take longest. They start first, because one that starts last runs while the other workers are idle."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with the longest modules and the end-to-end tests; run ``ci`` and ``slow`` tests if ``-m`` names them."""
    items.sort(key=_place)
    named = re.findall(r"\w+", config.option.markexpr)
    unnamed = [marker for marker in ("ci", "slow") if marker not in named]
    deselected = [item for item in items if any(map(item.get_closest_marker, unnamed))]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in set(deselected)]


def _place(item: pytest.Item) -> int:
    """The place of a test's module in the order; the order within a module does not change."""
    if item.path.stem in LONG:
        return LONG.index(item.path.stem)
    return len(LONG) + (item.path.parent.name not in ("e2e", "docs"))
