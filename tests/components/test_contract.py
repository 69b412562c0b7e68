"""What every component of a model must do, whoever wrote it: one model is built around each, and looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.supervision import PerLoop
from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel, build_model, load_weights, save_weights
from loopkit.objective import Objective
from loopkit.recipe import component
from loopkit.registry.catalog import catalog
from tests.model.tiny import BLOCK, LENGTH, VOCABULARY, batch, section

LOOPS = 3
REQUIRED: dict[tuple[str, str], dict[str, Any]] = {
    ("attention", "causal"): {"heads": 2},
    ("block", "transformer"): {"attention": {"heads": 2}},
    ("core", "stack"): {"layers": 2},
    ("carry", "chain"): {"of": ["norm", "damping"]},
}
"""Options without a default."""

OF_A_MODEL = ("position", "block", "core", "start", "injection", "carry", "readout", "gate", "init")
OF_A_BLOCK = ("attention", "mlp", "norm", "placement")
OF_AN_OBJECTIVE = ("supervision", "regularizer")


def names(*kinds: str) -> list[tuple[str, str]]:
    found = [(kind, name) for kind in kinds for name in catalog(plugins=False).names(kind)]
    assert {kind for kind, _ in found} == set(kinds)
    return found


def choice(kind: str, name: str) -> dict[str, Any]:
    return {"type": name} | REQUIRED.get((kind, name), {})


def around(kind: str, name: str, **more: Any) -> LoopedModel:
    """A model that has this component, and otherwise little."""
    parts: dict[str, Any] = {"start": "embedding", "injection": "add"}
    if kind in OF_A_BLOCK:
        parts["block"] = BLOCK | {kind: choice(kind, name)}
    else:
        parts[kind] = choice(kind, name)
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": LOOPS}
    return build_model(section(**parts), **(sizes | {"seed": 0} | more)).eval()


def logits(model: LoopedModel, data: Batch) -> Tensor:
    t = model.run(data, Loops.fixed(LOOPS))
    return torch.stack([t.logits(k) for k in range(1, LOOPS + 1)])


IN_A_MODEL = pytest.mark.parametrize(("kind", "name"), names(*OF_A_MODEL, *OF_A_BLOCK))


@IN_A_MODEL
def test_builds_and_runs_on_meta(kind: str, name: str) -> None:
    model = around(kind, name, device="meta")
    assert all(value.is_meta for value in model.state_dict().values())
    assert logits(model, batch().to("meta")).shape == (LOOPS, 3, LENGTH, VOCABULARY)


@IN_A_MODEL
@torch.no_grad()
def test_output_is_finite_and_causal(kind: str, name: str) -> None:
    model, data = around(kind, name), batch()
    out = logits(model, data)
    assert out.isfinite().all()
    later = data.tokens.clone()
    later[:, 7:] = (later[:, 7:] + 1) % VOCABULARY
    changed = logits(model, Batch.of(later))
    torch.testing.assert_close(changed[:, :, :7], out[:, :, :7], rtol=1e-5, atol=1e-6)
    assert (changed[:, :, 7:] - out[:, :, 7:]).abs().max() > 1e-4


@IN_A_MODEL
@torch.no_grad()
def test_batch_size_changes_nothing(kind: str, name: str) -> None:
    model, data = around(kind, name), batch(rows=4)
    parts = torch.cat([logits(model, part) for part in data.split(1)], dim=1)
    torch.testing.assert_close(parts, logits(model, data), rtol=1e-5, atol=1e-5)


@IN_A_MODEL
def test_gradient_reaches_every_parameter(kind: str, name: str) -> None:
    model = around(kind, name).train()
    t = model.run(batch(), Loops.fixed(LOOPS))
    loss = PerLoop()(t).loss
    if any(True for _ in model.gate.parameters()):
        loss = loss + t.gate(1).sum()
    loss.backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert idle == []


@IN_A_MODEL
@torch.no_grad()
def test_equal_seeds_give_equal_numbers_and_evaluation_changes_nothing(kind: str, name: str) -> None:
    model, data = around(kind, name), batch()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.manual_seed(1)
    first = logits(model, data)
    torch.manual_seed(2)
    assert torch.equal(logits(model, data), first)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(logits(around(kind, name), data), first)


@IN_A_MODEL
@torch.no_grad()
def test_weights_survive_a_file(kind: str, name: str, tmp_path: Path) -> None:
    model, data = around(kind, name), batch()
    save_weights(model, tmp_path / "weights.safetensors")
    empty = around(kind, name, seed=None)
    load_weights(empty, tmp_path / "weights.safetensors")
    assert torch.equal(logits(empty, data), logits(model, data))


@IN_A_MODEL
@torch.no_grad()
def test_one_pass_serves_every_depth_or_the_component_says_that_it_does_not(kind: str, name: str) -> None:
    model, data = around(kind, name), batch()
    if not model.depth_free:
        return
    t = model.run(data, Loops.fixed(LOOPS))
    for k in range(1, LOOPS + 1):
        alone = model.run(data, Loops.fixed(k)).logits(k)
        torch.testing.assert_close(t.logits(k, at=k), alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "name"), names(*OF_AN_OBJECTIVE))
def test_parts_of_an_objective_give_finite_scalars_with_gradient(kind: str, name: str) -> None:
    spec = component(kind, choice(kind, name))
    model = around("gate", "linear").train()
    t = model.run(batch(unscored=3), Loops.fixed(LOOPS))
    part = spec.build()
    value = part(t).loss if kind == "supervision" else part(t)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert value.isfinite()
    value.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.core.parameters())


@pytest.mark.parametrize(("kind", "name"), names("supervision"))
def test_a_supervision_reads_the_loops_that_it_declares(kind: str, name: str) -> None:
    supervision = component(kind, choice(kind, name)).build()
    model = around("gate", "linear")
    read: list[int] = []
    readout = model.readout.forward
    model.readout.forward = lambda h, k, at: read.append(k) or readout(h, k, at)
    for total in (1, 2, LOOPS):
        read.clear()
        outcome = Objective(supervision)(model.run(batch(), Loops.fixed(total)), optimizer_step=0)
        assert sorted(read) == sorted(supervision.loops(total)) == sorted(outcome.ce)
