"""An imported Ouro reproduces the numbers of the published implementation at four and at eight loops."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import loopkit
from loopkit.components.exit import GateCdf
from loopkit.components.supervision import ExitWeighted, PerLoop, log_exit_distribution
from loopkit.interop import import_folder
from loopkit.loop import IGNORE, PAD, Batch, Loops, Trajectory
from loopkit.model import LoopedModel
from loopkit.runs import RunFolder

FOLDERS = ("hf", "hf_gqa")
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9}


class Reference:
    """The published numbers of one folder in one precision, and the imported model."""

    def __init__(self, golden: Path, name: str, dtype: torch.dtype, run: Path) -> None:
        suffix = "_f64" if dtype == torch.float64 else ""
        self.dtype = dtype
        self.expected = load_file(golden / f"{name}.expected{suffix}.safetensors")
        self.in_fp32 = load_file(golden / f"{name}.expected.safetensors")
        if not run.exists():
            import_folder(golden / name, RunFolder(run))
        loaded, _, self.recipe = loopkit.load(run)
        self.model: LoopedModel = loaded.to(dtype)

    def run(self, loops: int, tokens: Tensor | None = None) -> Trajectory:
        tokens = self.expected["input_ids"] if tokens is None else tokens
        return self.model.run(shift(tokens), Loops.fixed(loops))

    def check(self, name: str, result: Tensor) -> None:
        expected = self.expected[name]
        assert result.dtype == self.dtype
        assert result.shape == expected.shape, name
        error = ((result - expected).abs() / (1 + expected.abs())).max().item()
        assert error < TOLERANCE[self.dtype], f"{name}: relative error {error:.1e}"


def shift(tokens: Tensor) -> Batch:
    """Shift labels as the reference does; the last token predicts nothing."""
    labels = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], IGNORE)], dim=1)
    return Batch.of(tokens, labels)


@cache
def load_reference(golden: Path, name: str, dtype: torch.dtype, run: Path) -> Reference:
    return Reference(golden, name, dtype, run)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def reference(request: pytest.FixtureRequest, golden_dir: Path, runs: Path, folder: str) -> Reference:
    return load_reference(golden_dir / "ouro_tiny", folder, request.param, runs / folder)


@pytest.fixture
def in_fp32(golden_dir: Path, runs: Path, folder: str) -> Reference:
    return load_reference(golden_dir / "ouro_tiny", folder, torch.float32, runs / folder)


@pytest.mark.parametrize("loops", [4, 8])
@torch.no_grad()
def test_states_gates_and_logits_equal_the_reference(reference: Reference, loops: int) -> None:
    t, ks = reference.run(loops), range(1, loops + 1)
    gates = torch.stack([t.gate(k) for k in ks])
    result = {
        "hidden": torch.stack([t.readout(k) for k in ks]),
        "gate_logits": gates,
        "gate_prob": gates.sigmoid(),
        "exit_pdf": log_exit_distribution(gates).exp(),
        "exit_cdf": log_exit_distribution(gates).exp().cumsum(dim=0),
        "logits_at_step": torch.stack([t.logits(k) for k in ks]),
        "logits_default": t.logits(loops),
    }
    checked = [name for name in result if f"ut{loops}/{name}" in reference.expected]
    for name in checked:
        reference.check(f"ut{loops}/{name}", result[name])
    # for four loops, the fp64 file contains only what eight loops do not repeat
    assert set(checked) >= ({"exit_pdf"} if reference.dtype == torch.float64 else set(result))


@torch.no_grad()
def test_the_readout_is_fed_back(reference: Reference) -> None:
    t = reference.run(8)
    torch.testing.assert_close(t.carried(3), t.readout(3), rtol=0, atol=0)


@pytest.mark.parametrize("loops", [4, 8])
@torch.no_grad()
def test_losses_equal_the_reference(reference: Reference, loops: int) -> None:
    t = reference.run(loops)
    mixed, weighted = ExitWeighted(mix="logits", entropy=0.0)(t), ExitWeighted(mix="losses", entropy=0.0)(t)
    result = {
        "loss_mixture_logits_shifted": mixed.loss,
        "loss_exit_weighted_sum_of_ce_shifted": weighted.loss,
        "ce_per_step_shifted": torch.stack(list(PerLoop()(t).ce.values())),
    }
    for name in (name for name in result if f"ut{loops}/{name}" in reference.expected):
        reference.check(f"ut{loops}/{name}", result[name])
    assert f"ut{loops}/loss_mixture_logits_shifted" in reference.expected
    ks = range(1, loops + 1)
    p = log_exit_distribution(torch.stack([t.gate(k) for k in ks])).exp()
    reference.check(f"ut{loops}/logits_weighted", sum(p[k - 1, ..., None] * t.logits(k) for k in ks))  # type: ignore[arg-type]


@pytest.mark.parametrize("loops", [4, 8])
@pytest.mark.parametrize("threshold", [0.5, 0.8])
@torch.no_grad()
def test_threshold_exits_equal_the_reference(in_fp32: Reference, loops: int, threshold: float) -> None:
    t, gate = in_fp32.run(loops), GateCdf(threshold=threshold)
    ready = torch.stack([gate.score(t, k) >= threshold for k in range(1, loops)] + [torch.ones_like(t.batch.scored)])
    step = ready.int().argmax(dim=0)
    assert torch.equal(step, in_fp32.expected[f"ut{loops}/exit_step_threshold_{threshold}"])
    logits = torch.stack([t.logits(k) for k in range(1, loops + 1)])
    chosen = logits.gather(0, step[None, ..., None].expand(1, *logits.shape[1:]))[0]
    in_fp32.check(f"ut{loops}/logits_threshold_{threshold}", chosen)


@pytest.mark.parametrize("loops", [4, 8])
@pytest.mark.parametrize("exit_after", [None, 0, 1], ids=["last", "first", "second"])
@pytest.mark.parametrize("prompt", [0, 1, 2])
@torch.no_grad()
def test_greedy_generation_equals_the_reference(
    in_fp32: Reference, loops: int, exit_after: int | None, prompt: int
) -> None:
    prefix = f"ut{loops}/" + ("" if exit_after is None else f"exit{exit_after}/")
    depth = loops if exit_after is None else exit_after + 1
    tokens, generated, logits = in_fp32.expected[f"prompt{prompt}"][None], [], []
    for _ in range(12):
        logits.append(in_fp32.run(depth, tokens).logits(depth)[0, -1])
        generated.append(int(logits[-1].argmax()))
        tokens = torch.cat([tokens, torch.tensor([[generated[-1]]])], dim=1)
    assert generated == in_fp32.expected[f"{prefix}greedy/prompt{prompt}"].tolist()
    in_fp32.check(f"{prefix}greedy_logits/prompt{prompt}", torch.stack(logits))


@pytest.mark.parametrize("loops", [4, 8])
@torch.no_grad()
def test_left_padding_changes_nothing(reference: Reference, loops: int) -> None:
    tokens, real = reference.in_fp32["batch/input_ids"], reference.in_fp32["batch/attention_mask"].bool()
    positions = (real.cumsum(dim=1) - 1).masked_fill(~real, PAD)
    batch = Batch(tokens, torch.full_like(tokens, IGNORE), positions, torch.arange(3))
    last = reference.model.run(batch, Loops.fixed(loops)).logits(loops)[:, -1]
    reference.check(f"ut{loops}/batch/last_logits", last)
    for row in range(3):
        single = reference.run(loops, reference.in_fp32[f"prompt{row}"][None]).logits(loops)[0, -1]
        torch.testing.assert_close(last[row], single, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_first_four_of_eight_loops_equal_four(reference: Reference) -> None:
    four, eight = reference.run(4), reference.run(8)
    torch.testing.assert_close(four.logits(4), eight.logits(4), rtol=0, atol=0)
    p4, p8 = (
        log_exit_distribution(torch.stack([t.gate(k) for k in range(1, t.reached + 1)])).exp() for t in (four, eight)
    )
    torch.testing.assert_close(p4[:3], p8[:3])
    assert (p4[3] - p8[3]).abs().max() > 1e-3  # the last loop takes the remaining probability


def test_the_recipe_describes_the_model(in_fp32: Reference) -> None:
    recipe = in_fp32.recipe
    assert recipe.evaluate.depths == "1-4"
    assert recipe.model.head.tied is False
    assert {kind: getattr(recipe.model, kind).name for kind in ("carry", "readout", "gate", "position")} == {
        "carry": "readout",
        "readout": "norm",
        "gate": "linear",
        "position": "rope",
    }
