"""Our model with a Huginn checkpoint's weights gives the reference implementation's numbers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from loopkit.components.supervision import Terminal
from loopkit.loop import Batch, Loops, Trajectory
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import component
from loopkit.recipe.format import EmbeddingConfig, StageConfig
from tests.model.tiny import section

TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9}
WIDTH, HEADS, VOCABULARY, LENGTH = 32, 4, 61, 32
BLOCK = {
    "type": "transformer",
    "attention": {"heads": HEADS, "qk_bias": True},
    "mlp": {"type": "swiglu", "hidden": 48},
    "norm": {"type": "rmsnorm", "eps": 1e-6},
    "placement": "post_sandwich",
}
OF_A_BLOCK = {
    "attention.qkv.weight": "attn.Wqkv.weight",
    "attention.qk_bias": "attn.qk_bias",
    "attention.out.weight": "attn.proj.weight",
    "mlp.gate.weight": "mlp.fc.weight",
    "mlp.up.weight": "mlp.fc.weight",
    "mlp.out.weight": "mlp.proj.weight",
    "around_attention.norm_in.weight": "norm_1.weight",
    "around_attention.norm_out.weight": "norm_2.weight",
    "around_mlp.norm_in.weight": "norm_3.weight",
    "around_mlp.norm_out.weight": "norm_4.weight",
}
NAMES = {
    "embedding.tokens.weight": "transformer.wte.weight",
    "head.weight": "transformer.wte.weight",
    "injection.mix.weight": "transformer.adapter.weight",
    "coda.norm.weight": "transformer.ln_f.weight",
    "readout.norm.weight": "transformer.ln_f.weight",
} | {
    f"{stage}.blocks.{i}.{name}": f"transformer.{reference_stage}.{i}.{reference_name}"
    for stage, reference_stage, layers in (("prelude", "prelude", 1), ("core", "core_block", 2), ("coda", "coda", 1))
    for i in range(layers)
    for name, reference_name in OF_A_BLOCK.items()
}


def huginn(start: Any = "zeros") -> LoopedModel:
    """Build the recipe's model with NaN weights."""
    norm = component("norm", "rmsnorm")
    model = section(
        width=WIDTH,
        embedding=EmbeddingConfig(scale="sqrt_width"),
        position={"type": "rope", "base": 50000.0, "pairing": "interleaved"},
        block=BLOCK,
        prelude=1,
        core=2,
        coda=StageConfig(layers=1, norm=norm),
        start=start,
        injection="concat",
        readout="norm",
        tie={"coda.norm": "readout.norm"},
    )
    return build_model(model, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=8)


class Reference:
    """The fixture of one precision."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.case = json.loads((folder / "case.json").read_text())
        self.weights = load_file(folder / "hf" / "model.safetensors")
        self.inputs = load_file(folder / "expected.safetensors")
        self.expected = load_file(folder / f"expected{'_f64' if dtype == torch.float64 else ''}.safetensors")
        self.model = huginn()
        self.model.load_state_dict({name: self.weight(name) for name in self.model.state_dict()})
        self.model.to(dtype).eval()

    def weight(self, name: str) -> Tensor:
        value = self.weights[NAMES[name]]
        if name.endswith("qk_bias"):
            return value.flatten()
        if name.endswith(("mlp.gate.weight", "mlp.up.weight")):
            return value.chunk(2)[name.endswith("mlp.up.weight")]
        return value

    @property
    def batch(self) -> Batch:
        return Batch.of(self.inputs["input_ids"], self.inputs["labels"])

    def run(self, loops: int, start: Tensor | None = None) -> Trajectory:
        with torch.no_grad():
            return self.model.run(self.batch, Loops.fixed(loops), start=start)

    def check(self, name: str, actual: Tensor) -> None:
        expected = self.expected[name]
        assert actual.dtype == self.dtype
        assert actual.shape == expected.shape, name
        error = ((actual - expected).abs() / (1 + expected.abs())).max().item()
        assert error < TOLERANCE[self.dtype], f"{name}: off by {error:.1e}"


@cache
def load_reference(folder: Path, dtype: torch.dtype) -> Reference:
    return Reference(folder, dtype)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def reference(request: pytest.FixtureRequest, golden_dir: Path) -> Reference:
    return load_reference(golden_dir / "huginn_tiny", request.param)


def test_every_checkpoint_weight_is_mapped(reference: Reference) -> None:
    # the rotation's table is a buffer that the reference saves; we compute it
    assert set(NAMES.values()) == set(reference.weights) - {"freqs_cis"}
    assert set(NAMES) == set(reference.model.state_dict())
    assert reference.model.coda.norm is reference.model.readout.norm


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 8])
@torch.no_grad()
def test_every_depth_from_the_zero_state(reference: Reference, steps: int) -> None:
    t = reference.run(steps)
    reference.check(f"zero_state/steps{steps}/latent", reference.model.readout(t.state(steps), steps, steps))
    reference.check(f"zero_state/steps{steps}/final_hidden", t.readout(steps))
    reference.check(f"zero_state/steps{steps}/logits", t.logits(steps))
    reference.check(f"zero_state/steps{steps}/loss", Terminal()(t).loss)


@torch.no_grad()
def test_one_pass_serves_all_depths(reference: Reference) -> None:
    t = reference.run(8)
    for steps in (1, 2, 4, 8):
        reference.check(f"zero_state/steps{steps}/logits", t.logits(steps, at=steps))


@pytest.mark.parametrize("steps", [1, 4])
@torch.no_grad()
def test_from_a_given_state(reference: Reference, steps: int) -> None:
    t = reference.run(steps, reference.expected["init_state"].to(reference.dtype))
    reference.check(f"given_state/steps{steps}/latent", reference.model.readout(t.state(steps), steps, steps))
    reference.check(f"given_state/steps{steps}/logits", t.logits(steps))


def test_prelude_and_raw_states(golden_dir: Path) -> None:
    reference = load_reference(golden_dir / "huginn_tiny", torch.float32)  # the fp64 file leaves these out
    t = reference.run(4)
    reference.check("prelude_output", t.e)
    reference.check("zero_state/raw_state_after_step_1_to_4", torch.stack([t.state(k) for k in range(1, 5)]))


@torch.no_grad()
def test_greedy_tokens(reference: Reference) -> None:
    tokens = reference.inputs["input_ids"][:1, :5]
    for _ in range(8):
        logits = reference.model.run(Batch.of(tokens), Loops.fixed(4)).logits(4)
        tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
    assert tokens[0, 5:].tolist() == reference.inputs["greedy/steps4/first5_tokens_of_row0"].tolist()


def test_start_is_published_truncated_gaussian(reference: Reference) -> None:
    std = reference.case["observed"]["embedding_scale"] * (2 / (5 * WIDTH)) ** 0.5
    assert std == pytest.approx(0.4**0.5)
    model = huginn({"type": "normal", "std": 0.4**0.5, "truncate": 3.0})
    model.load_state_dict(reference.model.state_dict())
    model.to(reference.dtype).eval()
    c = model.run(Batch.of(torch.zeros(64, LENGTH, dtype=torch.int64)), Loops.fixed(0)).state(0)
    assert c.abs().max() <= 3 * std
    assert c.abs().max() > 2.9 * std
    # the standard deviation of a Gaussian cut at three of its own
    assert c.std().item() == pytest.approx(std * 0.98658, rel=0.01)
