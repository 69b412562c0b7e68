"""A core whose state has streams: other components receive their number or are refused.

Dims: S streams, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loopkit import testing
from loopkit.components.injection import Add, Concat, Diagonal, Gated, Injection, NoInjection
from loopkit.errors import UserError
from loopkit.loop import Loops
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import RecipeError, component, load_recipe
from loopkit.registry.catalog import catalog
from tests.components.steps import random, step_for
from tests.model.tiny import LENGTH, LOOPS, VOCABULARY, batch, section

STREAMS = 3
CORE = Path(testing.__file__).parent / "stream_core.py"
E, C = random(2, 5, 4), random(2, 5, STREAMS, 4, seed=1)


@pytest.mark.parametrize(
    "injection", [NoInjection(), Add(4), Concat(4), Gated(4), Diagonal(4)], ids=lambda part: type(part).__name__
)
def test_injection_runs_on_each_stream_separately(injection: Injection) -> None:
    """Return the numbers that separate states would get, in the shape of the state."""
    together = injection(C, E, step_for(E))
    alone = [injection(C[:, :, stream], E, step_for(E)) for stream in range(STREAMS)]
    torch.testing.assert_close(together, torch.stack(alone, dim=2))


def model(core: str = "kit_streams", **parts: Any) -> LoopedModel:
    own_catalog = catalog(plugins=False).with_files([CORE])
    chosen = component("core", {"type": core, "streams": STREAMS}, among=own_catalog)
    plan = replace(section(init={"type": "normal", "std": 0.2}, **parts), core=chosen)
    return build_model(plan, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=LOOPS, seed=0)


@pytest.mark.parametrize("start", ["embedding", "zeros", "normal"])
def test_start_has_the_streams_of_the_core(start: str) -> None:
    t = model(start=start, injection="concat", carry="norm").run(batch(), Loops.fixed(2))
    assert [list(t.state(k).shape) for k in range(3)] == [[3, LENGTH, STREAMS, 16]] * 3
    t.nll([1, 2]).mean().backward()
    if start == "normal":  # streams have distinct numbers
        assert (t.state(0)[:, :, 0] - t.state(0)[:, :, 1]).abs().min() > 0


def test_parts_without_streams_are_refused(tmp_path: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"model\.carry: carry 'readout' allows no streams.*has 3"):
        model(carry="readout")
    text = BASE.replace("core: 2", "core: {type: kit_streams}\n  carry: readout") + f"plugins: [{CORE}]\n"
    with pytest.raises(RecipeError, match="needs streams, which carry 'readout' does not allow"):
        load_recipe(write(text))
    load_recipe(write(text.replace("carry: readout", "carry: norm")))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "mine.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


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
