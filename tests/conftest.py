"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# the tensors of tests are tiny: threads cost more than they bring, and fight each other where cores are shared
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference numbers and real data that stand beside the checkout; absent elsewhere."""
    folder = ROOT.parent / "shared"
    if not (folder / "golden").is_dir():
        pytest.skip("the folder with reference numbers and real data is not beside this checkout")
    return folder
