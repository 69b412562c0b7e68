"""Recipes written for one test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

BASE = """\
loopkit: 2
data: {source: python_docs, tokenizer: bytes, length: 32}
model:
  width: 32
  block: {attention: {heads: 2}}
  core: 2
objective: {supervision: per_loop}
train: {steps: 4, batch: 4, schedule: 2, lr: 1e-3}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe file; without text, a small whole one."""

    def write(text: str = BASE, name: str = "mine.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write
