"""Our model with the reference implementation's weights gives the reference implementation's numbers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from loopkit.components.regularizer.scale import NormPenalty
from loopkit.components.supervision import ExitWeighted, PerLoop, Supervision, Terminal, log_exit_distribution
from loopkit.loop import IGNORE, Batch, Loops, Trajectory, update_buffers
from loopkit.model import LoopedModel, build_model
from loopkit.objective import Objective
from tests.model.tiny import section

TOLERANCE = {torch.float32: 5e-5, torch.float64: 1e-9}
LOOPS = 6
ALPHA = {"type": "alpha", "s_ref": "learned"}
CASES: dict[str, dict[str, Any]] = {
    "norm": {},
    "raw": {"readout": "raw"},
    "final_only": {"readout": "final_only"},
    "norm_interloop": {"carry": "norm"},
    "raw_interloop": {"readout": "raw", "carry": "norm"},
    "norm_damped": {"carry": "damping"},
    "raw_damped": {"readout": "raw", "carry": "damping"},
    "norm_interloop_damped": {"carry": {"type": "chain", "of": ["norm", "damping"]}},
    "alpha_fixed": {"readout": {"type": "alpha", "alpha": 0.375, "s_ref": "fixed"}},
    "alpha_learned": {"readout": ALPHA | {"min": 0.1, "max": 0.9}},
    "alpha_per_loop": {"readout": ALPHA | {"per_loop": True}},
    "final_only@K4": {"readout": "final_only"},
    "norm_damped@K4": {"carry": "damping"},
}
NAMES = {
    "embedding.tokens.weight": "token_embedding.weight",
    "position.table.weight": "position_embedding.weight",
    "readout.norm.weight": "decode_norm.weight",
    "carry.norm.weight": "loop_norm.weight",
    "carry.of.0.norm.weight": "loop_norm.weight",
    "carry.logit": "raw_alpha",
    "carry.of.1.logit": "raw_alpha",
    "gate.linear.weight": "exit_gate.weight",
    "gate.linear.bias": "exit_gate.bias",
} | {
    f"core.blocks.{i}.{name}.weight": f"layers.{i}.{reference_name}.weight"
    for i in range(2)
    for name, reference_name in {
        "attention.qkv": "attn.qkv",
        "attention.out": "attn.out_proj",
        "around_attention.norm": "attn_norm",
        "around_mlp.norm": "ffn_norm",
        "mlp.gate": "ffn.w1",
        "mlp.up": "ffn.w3",
        "mlp.out": "ffn.w2",
    }.items()
}
OBJECTIVES: dict[str, tuple[Supervision | None, float]] = {
    "terminal": (Terminal(), 0.0),
    "per_loop": (PerLoop(), 0.0),
    "adaptive": (ExitWeighted(entropy=0.1), 0.0),
    "penalty": (None, 0.01),
    "terminal_plus_penalty": (Terminal(), 0.01),
    "per_loop_plus_penalty": (PerLoop(), 0.01),
}


class Reference:
    """The fixture of one precision."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.cases = json.loads((folder / "case.json").read_text())["cases"]
        self.weights = load_file(folder / "weights.safetensors")
        self.expected = load_file(folder / f"expected{'_f64' if dtype == torch.float64 else ''}.safetensors")

    def reference_name(self, name: str, per_loop: bool) -> str:
        if name.startswith("readout.scales."):
            _, _, loop, part = name.split(".")
            return f"decode_norm.{loop}.{part}" if per_loop else f"decode_norm.{part}"
        return NAMES[name]

    def model(self, parts: dict[str, Any]) -> LoopedModel:
        mlp = {"type": "swiglu", "ratio": 4}
        block = {"type": "transformer", "attention": {"heads": 4}, "mlp": mlp, "norm": "rmsnorm", "placement": "pre"}
        chosen = {"position": "learned", "gate": "linear"} | parts
        model = build_model(section(width=32, block=block, **chosen), vocabulary=61, max_length=16, max_loops=LOOPS)
        per_loop = model.max_depth is not None
        state = {
            name: self.weights[self.reference_name(name, per_loop)]
            for name in model.state_dict()
            if name != "head.weight"
        }
        assert model.load_state_dict(state, strict=False).missing_keys == ["head.weight"]
        return model.to(self.dtype).eval()

    def batch(self, labels: str = "labels") -> Batch:
        token_labels = self.expected[labels]
        return Batch.of(self.expected["input_ids"], token_labels.masked_fill(token_labels == 0, IGNORE))

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
    return load_reference(golden_dir / "readout_blind_spot", request.param)


def run(reference: Reference, case: str, labels: str = "labels") -> Trajectory:
    return reference.model(CASES[case]).run(reference.batch(labels), Loops.fixed(4 if case.endswith("@K4") else LOOPS))


def test_every_case_of_the_fixture_is_covered(reference: Reference) -> None:
    assert set(reference.cases) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_states_gates_and_logits_at_every_loop(reference: Reference, case: str) -> None:
    t = run(reference, case)
    ks = range(1, t.loops.total + 1)
    with torch.no_grad():
        reference.check(f"{case}/logits", torch.stack([t.logits(k) for k in ks]))
        hidden = torch.stack([t.state(k) for k in ks])
        gates = torch.stack([t.gate(k) for k in ks])
        for name, actual in {
            "hidden": hidden,
            "token_norm": hidden.norm(dim=-1),
            "hidden_norm_mean": hidden.norm(dim=-1).mean(dim=(1, 2)),
            "gate_logits": gates,
            "exit_pdf": log_exit_distribution(gates).exp(),
        }.items():
            if f"{case}/{name}" in reference.expected:  # the fp64 file leaves out what another case repeats
                reference.check(f"{case}/{name}", actual)


@pytest.mark.parametrize("case", CASES)
def test_losses(reference: Reference, case: str) -> None:
    t = run(reference, case)
    terminal, per_loop = Terminal()(t), PerLoop()(t)
    weighted, adaptive = ExitWeighted(entropy=0.0)(t), ExitWeighted(entropy=0.1)(t)
    square = NormPenalty()(t)
    reference.check(f"{case}/loss/terminal", terminal.loss)
    reference.check(f"{case}/loss/per_loop", per_loop.loss)
    reference.check(f"{case}/loss/ce_per_loop", torch.stack(list(per_loop.ce.values())))
    reference.check(f"{case}/loss/exit_weighted_ce", weighted.loss)
    reference.check(f"{case}/loss/exit_entropy", adaptive.terms["exit_entropy"])
    reference.check(f"{case}/loss/adaptive", adaptive.loss)
    reference.check(f"{case}/loss/mean_square", square)
    for name in ("penalty", "terminal_plus_penalty", "per_loop_plus_penalty"):
        reference.check(f"{case}/loss/{name}", total(t, name))


@pytest.mark.parametrize("case", CASES)
def test_losses_with_padded_labels(reference: Reference, case: str) -> None:
    t = run(reference, case, "labels_with_pad")
    per_loop = PerLoop()(t)
    reference.check(f"{case}/loss_with_pad/terminal", Terminal()(t).loss)
    reference.check(f"{case}/loss_with_pad/per_loop", per_loop.loss)
    reference.check(f"{case}/loss_with_pad/ce_per_loop", torch.stack(list(per_loop.ce.values())))
    # the reference divides by all positions, we by the scored ones
    scored = t.batch.num_scored / t.batch.labels.numel()
    assert scored < 1
    reference.check(f"{case}/loss_with_pad/exit_weighted_ce", ExitWeighted(entropy=0.0)(t).loss * scored)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("case", [case for case in CASES if "@" not in case])
def test_gradients(reference: Reference, case: str, objective: str) -> None:
    t = run(reference, case)
    total(t, objective).backward()
    assert isinstance(t.model, LoopedModel)
    stored = 0
    for name, parameter in t.model.named_parameters():
        reference_name = reference.reference_name(name, per_loop=t.model.max_depth is not None)
        norm, dot = (
            f"{case}/grad_norm/{objective}/{reference_name}",
            f"{case}/grad_dot_param/{objective}/{reference_name}",
        )
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if norm in reference.expected:
            stored += 1
            reference.check(norm, gradient.norm())
            if dot in reference.expected:
                reference.check(dot, (gradient * parameter).sum().detach())
        elif not (reference.dtype == torch.float64 and objective.endswith("_plus_penalty")):
            assert gradient.norm() == 0, f"{name} has a gradient, the reference has none"
    stored_norms = [name for name in reference.expected if name.startswith(f"{case}/grad_norm/{objective}/")]
    assert stored == len(stored_norms)


def test_running_scale_of_alpha_in_training(reference: Reference) -> None:
    """The running scale is that of the reference, and is used a step later.

    The reference takes the scale from the tokens of a pass before it uses it in the same pass, so its logits depend on
    the micro-batch. Ours is constant within an optimizer step; it enters the logits as one factor for each loop.
    """
    decay = 0.9
    readout = {"type": "alpha", "s_ref": "ema", "decay": decay}
    block = {"type": "transformer", "attention": {"heads": 4}, "mlp": {"type": "swiglu", "ratio": 4}}
    parts = {"position": "learned", "readout": readout}
    model = build_model(section(width=32, block=block, **parts), vocabulary=61, max_length=16, max_loops=LOOPS, seed=0)
    for name, value in model.named_parameters():
        with torch.no_grad():
            value.copy_(reference.weights[reference.reference_name(name, per_loop=False)])
    model.to(reference.dtype).train()
    batch, scale = reference.batch(), model.readout.scales[0]
    t = model.run(batch, Loops.fixed(LOOPS))
    log_s_ref, factors = None, []
    for k in range(1, LOOPS + 1):
        log_s = t.state(k).square().mean(-1).log().mean() / 2
        log_s_ref = log_s if log_s_ref is None else decay * log_s_ref + (1 - decay) * log_s
        factors.append(((1 - scale.alpha_logit.sigmoid()) * (log_s_ref - scale.log_s_ref)).exp())
    logits = torch.stack([factor * t.logits(k) for k, factor in enumerate(factors, start=1)])
    reference.check("alpha_ema_train/logits", logits.detach())
    assert scale.log_s_ref == 0
    update_buffers(model)
    reference.check("alpha_ema_train/log_s_ref_after_1_forward", scale.log_s_ref)
    t = model.run(batch, Loops.fixed(LOOPS))
    for k in range(1, LOOPS + 1):
        t.readout(k)
    update_buffers(model)
    reference.check("alpha_ema_train/log_s_ref_after_2_forwards", scale.log_s_ref)


def total(t: Trajectory, name: str) -> Tensor:
    """One of the reference's objectives."""
    supervision, weight = OBJECTIVES[name]
    if supervision is None:
        return weight * NormPenalty()(t)
    regularizers = {"norm_penalty": NormPenalty(weight=weight)} if weight else {}
    return Objective(supervision, regularizers)(t, optimizer_step=0).loss
