"""The engine's gradients, norms and updates are those of plain torch, on every ZeRO stage."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from loopkit.components.optimizer import AdamW, Muon, OptimizerRule
from loopkit.data.batch_sizes import BatchSizes
from loopkit.loop import IGNORE, PAD, Batch, Loops
from loopkit.model import build_model
from loopkit.model.parameter_groups import freeze, parameter_groups
from loopkit.objective import build_objective
from loopkit.training.checkpointing.optimizer_state import (
    gather_optimizer_state,
    gathered_parameters,
    load_optimizer_state,
)
from loopkit.training.distributed.process_group import join
from loopkit.training.step.deepspeed_config import deepspeed_config
from loopkit.training.step.engine import Engine
from loopkit.training.step.module import TrainingModule
from tests.training.conftest import Maker

LENGTH, VOCABULARY = 16, 40


def module(recipe: Maker, *overrides: str) -> TrainingModule:
    resolved = recipe(*overrides)
    model = build_model(resolved.model, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=4, seed=1)
    freeze(model, resolved.train.trainable)
    return TrainingModule(model, build_objective(resolved.objective), seed=1, precision=resolved.train.precision)


# a large eps, because Adam turns the rounding error of a gradient near zero into a full step
RULE = AdamW(weight_decay=0.1, eps=1e-3)
MUON = Muon(weight_decay=0.1, fallback=lambda: RULE, exclude=["*.mlp.gate.weight"], lr_scales={"embedding": 2.0})


def engine(
    built: TrainingModule, micro: int = 8, *, stage: int = 0, clip: float | None = None, rule: OptimizerRule = RULE
) -> Engine:
    config = deepspeed_config(BatchSizes.of(8, micro, 1), clip, {"zero_optimization": {"stage": stage}})
    return Engine(built, rule.build(parameter_groups(built)), config, join("cpu"))


def batch(seed: int = 0, *, uneven: bool = False, padded: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (8, LENGTH + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    if uneven:
        for row in range(8):
            labels[row, : 2 * row] = IGNORE
    whole_batch = Batch.of(tokens[:, :-1].contiguous(), labels)
    if padded:  # sequence n has 2 n + 1 real tokens
        padding = torch.arange(LENGTH) > 2 * torch.arange(8)[:, None]
        positions = whole_batch.positions.masked_fill(padding, PAD)
        whole_batch = replace(whole_batch, labels=labels.masked_fill(padding, IGNORE), positions=positions)
    return whole_batch


def real_tokens(batch: Batch) -> int:
    return int((batch.positions < PAD).sum())


def step(built: Engine, whole_batch: Batch, micro: int, number: int = 0, loops: Loops | None = None) -> Tensor | None:
    """Run all micro-steps of an optimizer step without the update; return the gradient norm."""
    loops = Loops.fixed(3) if loops is None else loops
    parts = whole_batch.split(micro)
    assert whole_batch.num_scored
    for part in parts:
        share = (part.num_scored or 0) * len(parts) / whole_batch.num_scored
        token_share = real_tokens(part) * len(parts) / real_tokens(whole_batch)
        built.micro_step(part, loops, number, share, token_share)
        if part is not parts[-1]:
            built.next_micro_step()
    return built.grad_norm()


def gradients(built: Engine) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in built.module.named_parameters() if p.grad is not None}


def plain_step(
    built: TrainingModule, optimizer: torch.optim.Optimizer, whole_batch: Batch, clip: float, lr: float
) -> float:
    """Train one step without DeepSpeed; return the gradient norm before clipping."""
    built(whole_batch, Loops.fixed(3), 0, 1.0)[0].backward()
    norm = torch.nn.utils.clip_grad_norm_(built.parameters(), clip)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


@pytest.mark.parametrize("how", [{}, {"uneven": True}, {"padded": True}])
def test_gradient_does_not_depend_on_micro_batch(recipe: Maker, how: dict[str, bool]) -> None:
    results = {}
    for micro in (8, 4, 2, 1):
        # large enough for the regularizer's gradient to matter
        built = engine(module(recipe, "objective.regularizers.norm_penalty.weight=0.5"), micro)
        step(built, batch(**how), micro)
        results[micro] = gradients(built)
    for micro in (4, 2, 1):
        for name, expected in results[8].items():
            difference = (results[micro][name] - expected).norm() / expected.norm()
            assert difference < 1e-5, f"{name}: {difference}"


JACOBIAN = tuple(f"objective.regularizers={{jsrr: {{product: {product}, weight: 0.5}}}}" for product in ("vjp", "jvp"))
"""Regularizers that differentiate within the engine's forward pass."""


@pytest.mark.parametrize("regularizers", JACOBIAN)
def test_jacobian_gradient_does_not_depend_on_micro_batch(recipe: Maker, regularizers: str) -> None:
    results = {}
    for micro in (8, 2):
        built = engine(module(recipe, regularizers), micro)
        step(built, batch(), micro)
        results[micro] = gradients(built)
    for name, expected in results[8].items():
        assert torch.allclose(results[2][name], expected, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize(
    ("stage", "regularizers"), [(0, ""), (1, ""), (2, ""), (3, ""), *((s, r) for s in (0, 1, 2) for r in JACOBIAN)]
)
def test_updates_are_those_of_plain_torch(recipe: Maker, stage: int, regularizers: str) -> None:
    overrides = [regularizers] if regularizers else []
    plain = module(recipe, *overrides)
    optimizer = AdamW(weight_decay=0.1, eps=1e-3).build(parameter_groups(plain))
    built = engine(module(recipe, *overrides), 8, stage=stage, clip=0.05)
    for number in range(3):
        expected = plain_step(plain, optimizer, batch(number), 0.05, 1e-2)
        norm = step(built, batch(number), 8)
        after = built.update(1e-2)
        results = after if norm is None else norm.item()
        assert results is not None
        assert results == pytest.approx(expected, rel=1e-5)
        assert results > 0.05  # clipping is active, and the norm is that before clipping
    with gathered_parameters(built):
        for (name, actual), expected in zip(built.module.named_parameters(), plain.parameters(), strict=True):
            assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-6), name


EMA = "model.readout={type: alpha, s_ref: ema, decay: 0.9}"


def buffers(built: Engine) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in built.module.named_buffers() if "log_s_ref" in name}


def test_running_buffers_do_not_depend_on_micro_batch(recipe: Maker) -> None:
    """Gradients do not either, because a buffer is constant within a step."""
    results = []
    for micro in (8, 2):
        built = engine(module(recipe, EMA), micro)
        for number in range(2):
            step(built, batch(number, padded=True), micro)
            slopes = gradients(built)
            built.update(1e-2)
        results.append(buffers(built) | slopes)
    assert any("log_s_ref" in name and value != 0 for name, value in results[0].items())
    for name, value in results[0].items():
        assert torch.allclose(results[1][name], value, rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_skipped_step_does_not_change_buffers(recipe: Maker, stage: int) -> None:
    built, other = (engine(module(recipe, EMA), stage=stage) for _ in range(2))
    before = buffers(built)
    step(built, batch(1), 8)
    built.skip()
    assert buffers(built) == before
    if stage:  # ZeRO skips the step by itself
        built.micro_step(batch(1), Loops.fixed(2), 0, float("nan"))
        built.update(1e-2)
        assert buffers(built) == before
    for ran in (built, other):
        step(ran, batch(0), 8)
        ran.update(1e-2)
    assert buffers(built) == buffers(other) != before


SCALARS = ("model.readout={type: alpha, s_ref: learned}", "model.carry=damping", "train.trainable=['*']")
"""A model with parameters without dimensions."""


def with_plain_scalar(recipe: Maker, *overrides: str) -> TrainingModule:
    """A model with parameters without dimensions, one of them set as a plugin's author would."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, s: Tensor, read: object, step: object) -> Tensor:
            return s * self.factor

    built = module(recipe, *SCALARS, *overrides)
    built.model.carry = Scaled()
    freeze(built.model, recipe(*SCALARS, *overrides).train.trainable)
    return built


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("trainable", ["['*']", "['readout.*', 'carry.*']"], ids=["all", "scalars_alone"])
def test_parameters_without_dimensions_are_trained(recipe: Maker, stage: int, trainable: str) -> None:
    """They equal those of plain torch, including clipping; their state can be saved and loaded."""
    overrides = f"train.trainable={trainable}"
    plain = with_plain_scalar(recipe, overrides)
    optimizer = RULE.build(parameter_groups(plain))
    built = engine(with_plain_scalar(recipe, overrides), stage=stage, clip=0.05)
    for number in range(2):
        plain_step(plain, optimizer, batch(number), 0.05, 1e-2)
        step(built, batch(number), 8)
        built.update(1e-2)
    with gathered_parameters(built):
        actual = {name: value.detach().clone() for name, value in built.module.named_parameters()}
    scalars = [name for name, value in plain.named_parameters() if value.dim() == 0]
    assert "model.carry.factor" in scalars
    for name, value in plain.named_parameters():
        assert actual[name].shape == value.shape, name
        assert torch.allclose(actual[name], value, rtol=1e-4, atol=1e-6), name
    state = gather_optimizer_state(built)
    again = engine(with_plain_scalar(recipe, overrides), stage=stage)
    load_optimizer_state(again, state)
    loaded = gather_optimizer_state(again)
    for name in scalars:
        assert state[f"{name}/exp_avg"] != 0
        assert {key.rpartition("/")[2] for key in loaded if key.startswith(f"{name}/")} == {
            "step", "exp_avg", "exp_avg_sq"
        }  # fmt: skip
    assert all(value.equal(loaded[name]) and value.shape == loaded[name].shape for name, value in state.items())


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_muon_updates_equal_those_without_deepspeed(recipe: Maker, stage: int) -> None:
    """Without clipping, both sides orthogonalize the same bits with the same kernels, so the parameters are equal.

    The clipping factors of DeepSpeed and torch differ in the last bit of fp32, which the bf16 of the iteration may
    amplify to 2^-8.
    """
    plain = module(recipe)
    optimizer = MUON.build(parameter_groups(plain))
    built = engine(module(recipe), stage=stage, rule=MUON)
    for number in range(3):
        plain_step(plain, optimizer, batch(number), math.inf, 1e-2)
        step(built, batch(number), 8)
        built.update(1e-2)
    for (name, value), expected in zip(built.module.named_parameters(), plain.parameters(), strict=True):
        assert value.equal(expected), name


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_muon_averages_clipped_gradients(recipe: Maker, stage: int) -> None:
    """The momentum is linear in the clipped gradient and in fp32, so that only the factor's last bits may differ."""
    plain = module(recipe)
    optimizer = MUON.build(parameter_groups(plain))
    built = engine(module(recipe), stage=stage, clip=0.05, rule=MUON)
    assert plain_step(plain, optimizer, batch(), 0.05, 1e-2) > 0.05
    step(built, batch(), 8)
    built.update(1e-2)
    state = gather_optimizer_state(built)
    keys = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    num_compared = 0
    for name, parameter in plain.named_parameters():
        for key in optimizer.state[parameter].keys() & set(keys):
            expected = optimizer.state[parameter][key]
            assert torch.allclose(state[f"{name}/{key}"].view_as(expected), expected, rtol=1e-5, atol=0), (name, key)
            num_compared += 1
    assert num_compared == len([name for name in state if name.endswith(keys)]) > 0


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (2, 1), (0, 0)])
def test_state_of_muon_moves_between_stages(recipe: Maker, before: int, after: int) -> None:
    first = engine(module(recipe), stage=before, rule=MUON)
    for number in range(2):
        step(first, batch(number), 8)
        first.update(1e-2)
    state = gather_optimizer_state(first)
    qkv, gate = (f"model.core.blocks.0.{name}.weight" for name in ("attention.qkv", "mlp.gate"))
    assert {name for name in state if name.startswith(qkv)} == {f"{qkv}/momentum_buffer"}
    assert {name for name in state if name.startswith(gate)} == {
        f"{gate}/{k}" for k in ("step", "exp_avg", "exp_avg_sq")
    }
    second = engine(module(recipe), stage=after, rule=MUON)
    second.module.load_state_dict({name: value.clone() for name, value in first.module.state_dict().items()})
    if after:  # the master weights follow
        second.deepspeed.optimizer.refresh_fp32_params()
    load_optimizer_state(second, state)
    again = gather_optimizer_state(second)
    for name in state:
        assert state[name].equal(again[name]), name
    for built in (first, second):
        step(built, batch(2), 8)
        built.update(1e-2)
    for (name, actual), expected in zip(second.module.named_parameters(), first.module.parameters(), strict=True):
        assert (actual - expected).abs().max() < 2e-4, name


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_recomputing_the_shared_core_changes_nothing(recipe: Maker, stage: int) -> None:
    results = []
    for recompute in (False, True):
        built = engine(module(recipe), stage=stage)
        built.module.model.checkpointing = recompute
        for number in range(2):
            step(built, batch(number), 8, loops=Loops.fixed(4, 3))
            built.update(1e-2)
        with gathered_parameters(built):
            results.append({name: value.detach().clone() for name, value in built.module.named_parameters()})
    for name, expected in results[0].items():
        assert torch.allclose(results[1][name], expected, rtol=1e-5, atol=1e-7), name


def test_depths_and_truncated_backprop_may_alternate(recipe: Maker) -> None:
    built, plain = engine(module(recipe)), module(recipe)
    for loops in (Loops.fixed(4, 2), Loops.fixed(1), Loops.fixed(3, 1)):
        step(built, batch(), 8, loops=loops)
        results = gradients(built)
        plain(batch(), loops, 0, 1.0)[0].backward()
        for name, parameter in plain.named_parameters():
            assert (name in results) is (parameter.grad is not None)
            if parameter.grad is not None:
                assert torch.allclose(results[name], parameter.grad, rtol=1e-5, atol=1e-7), name
        core = [name for name in results if ".core." in name]
        assert core
        assert all(results[name].norm() > 0 for name in core)
        built.update(0.0)
        plain.zero_grad()


def test_truncated_backprop_reaches_the_core_under_autocast(recipe: Maker) -> None:
    # a weight cast to bf16 in the part without gradient must not be reused, without its history, in the part with it
    built = engine(module(recipe, "train.precision=bf16_autocast"))
    step(built, batch(), 8, loops=Loops.fixed(4, 1))
    assert all(value.norm() > 0 for name, value in gradients(built).items() if ".core." in name)


def test_unused_parameter_updates_equal_on_every_stage(recipe: Maker) -> None:
    results = []
    for stage in (0, 1):
        built = module(recipe)
        built.model.register_parameter("idle", torch.nn.Parameter(torch.ones(3)))
        ran = engine(built, stage=stage)
        step(ran, batch(), 8)
        ran.update(1e-2)
        results.append(built.model.idle.detach().clone())  # type: ignore[operator]
    assert results[0].equal(results[1])
    assert results[0].tolist() == pytest.approx([1 - 1e-2 * 0.1] * 3)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_optimizer_state_moves_between_stages(recipe: Maker, before: int, after: int) -> None:
    first = engine(module(recipe), stage=before)
    for number in range(2):
        step(first, batch(number), 8)
        first.update(1e-2)
    state = gather_optimizer_state(first)
    names = {name for name, _ in module(recipe).named_parameters()}
    assert state.keys() == {f"{name}/{key}" for name in names for key in ("exp_avg", "exp_avg_sq", "step")}
    assert all(state[f"{name}/step"] == 2 for name in names)
    second = engine(module(recipe), stage=after)
    load_optimizer_state(second, state)
    again = gather_optimizer_state(second)
    for name in state:
        assert state[name].equal(again[name]), name
    step(second, batch(2), 8)
    second.update(1e-2)
    assert gather_optimizer_state(second)["model.embedding.tokens.weight/step"] == 3


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_non_finite_gradient_is_reported(recipe: Maker, stage: int) -> None:
    built = engine(module(recipe), stage=stage, clip=1.0)
    built.micro_step(batch(), Loops.fixed(2), 0, float("nan"))
    norm = built.grad_norm()
    before = gather_optimizer_state(built)
    norm_reported = built.update(1e-2) if norm is None else norm.item()
    assert norm_reported is not None
    assert not math.isfinite(norm_reported)
    if stage > 0:  # on stage 0 the trainer checks before the update
        assert gather_optimizer_state(built).keys() == before.keys()
        with gathered_parameters(built):
            assert all(parameter.isfinite().all() for parameter in built.module.parameters())


def test_optimizer_state_of_other_parameters_is_refused(recipe: Maker) -> None:
    with pytest.raises(ValueError, match=r"does not match the trained parameters: .*nobody"):
        load_optimizer_state(engine(module(recipe)), {"nobody/exp_avg": torch.zeros(1)})


def test_groups_may_scale_the_learning_rate(recipe: Maker) -> None:
    built = engine(module(recipe))
    built.deepspeed.optimizer.param_groups[0]["lr_scale"] = 0.5
    step(built, batch(), 8)
    built.update(0.25)
    rates = [group["lr"] for group in built.deepspeed.optimizer.param_groups]
    assert rates[0] == 0.125
    assert set(rates[1:]) == {0.25}


def test_one_backward_serves_loss_and_regularizers(recipe: Maker) -> None:
    calls: list[Tensor] = []
    noted = calls.append
    built = engine(module(recipe, "objective.regularizers.norm_penalty.weight=0.5"))
    real = built.deepspeed.backward
    built.deepspeed.backward = lambda loss: (noted(loss), real(loss))
    step(built, batch(), 8)
    assert len(calls) == 1
    without = engine(module(recipe, "objective.regularizers.norm_penalty=false"))
    step(without, batch(), 8)
    name = "model.core.blocks.0.mlp.out.weight"
    assert not torch.allclose(gradients(built)[name], gradients(without)[name], rtol=1e-2)


def test_metrics_are_detached(recipe: Maker) -> None:
    measured = engine(module(recipe)).micro_step(batch(), Loops.fixed(2), 0, 1.0)
    assert not measured.values.requires_grad
    assert measured.names == ("loss", "ce/1", "ce/2", "regularizers/norm_penalty", "state_norm/1", "state_norm/2")
