"""A few optimizer steps of the training engine with the component under test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from loopkit.components.optimizer import AdamW
from loopkit.components.supervision import ExitWeighted, PerLoop, Supervision
from loopkit.errors import UserError
from loopkit.loop import PAD, Batch, Loops
from loopkit.model import LoopedModel
from loopkit.objective import Objective
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, build_model_around, pad_batch, uneven_batch
from loopkit.testing.recording import find_instances
from loopkit.testing.rules import MODULES, NotChecked
from loopkit.testing.variants import Variant

if TYPE_CHECKING:
    from loopkit.training.distributed.process_group import Process

TRAINED = (*MODULES, "init", "supervision", "regularizer", "optimizer")
"""Kinds that take part in an optimizer step."""

OWN_LOOPS = (LOOPS, 1, 2, 2)
"""Number of loops of each sequence in every second step."""

LEARNING_RATE = 1e-2
OPTIMIZER = AdamW(weight_decay=0.1, eps=1e-3)
"""The large eps keeps Adam from turning the rounding error of a gradient near zero into a full step."""


@dataclass(frozen=True)
class TrainingPlan:
    """How a component is trained.

    Args:
        options: Options of the component; ``None``: those of the default variant.
        micro_batch: Sequences of each micro-step on each rank; a step has 4 sequences.
        num_steps: Optimizer steps; every second one runs ``OWN_LOOPS``.
        padding: Columns of padding to add to every batch.
        frozen: Whether the parameters of the component are frozen.
    """

    options: Mapping[str, Any] | None = None
    micro_batch: int = 4
    num_steps: int = 2
    padding: int = 0
    frozen: bool = False


def join_alone() -> Process:
    """Join a process group of one rank on the CPU.

    Raises:
        NotChecked: If this program uses DeepSpeed on another device, or is one of several ranks.
    """
    from loopkit.training.distributed.deepspeed_import import deepspeed
    from loopkit.training.distributed.process_group import join

    process = join("cpu")
    try:
        deepspeed(process.device)
    except UserError as error:
        raise NotChecked(f"the training engine cannot run here: {error}") from None
    if process.world > 1:
        raise NotChecked("this program is one of several ranks")
    return process


def train(subject: ComponentUnderTest, plan: TrainingPlan, process: Process) -> dict[str, Tensor]:
    """Train a tiny model with the subject and return its saved buffers, then its parameters, by name."""
    from loopkit.data.batch_sizes import BatchSizes
    from loopkit.model.parameter_groups import parameter_groups
    from loopkit.training.checkpointing import rng
    from loopkit.training.step.deepspeed_config import deepspeed_config
    from loopkit.training.step.engine import Engine
    from loopkit.training.step.module import TrainingModule

    model = build_model_around(subject, None if subject.schema.kind not in _IN_A_MODEL else plan.options)
    own = {id(p) for part in find_instances(subject, model) for p in part.parameters()}
    for parameter in model.parameters():
        parameter.requires_grad_(not (plan.frozen and id(parameter) in own))
    module = TrainingModule(model.train(), _objective(subject, plan, model), seed=0, precision="fp32")
    optimizer_rule = subject.build(plan.options) if subject.schema.kind == "optimizer" else OPTIMIZER
    sizes = BatchSizes.of(len(OWN_LOOPS), plan.micro_batch, process.world)
    engine = Engine(module, optimizer_rule.build(parameter_groups(module)), deepspeed_config(sizes, 1.0, {}), process)
    rng.seed_all(0, process.rank)
    try:
        for step in range(plan.num_steps):
            batch = uneven_batch(seed=step)
            batch = pad_batch(batch, right=plan.padding) if plan.padding else batch
            for micro_step in range(sizes.accumulation):
                rows = sizes.rows(process.rank, micro_step)
                engine.micro_step(
                    batch.rows(rows), loops_in_step(subject, model, step, rows), step, *token_shares(batch, rows)
                )
                if micro_step + 1 < sizes.accumulation:
                    engine.next_micro_step()
            engine.update(LEARNING_RATE)
    finally:
        engine.close()
    parameters = dict(module.named_parameters())
    state = module.state_dict()
    return {name: state[name].clone() for name in sorted(state, key=lambda name: name in parameters)}


_IN_A_MODEL = (*MODULES, "init")


def _objective(subject: ComponentUnderTest, plan: TrainingPlan, model: LoopedModel) -> Objective:
    kind = subject.schema.kind
    supervision: Supervision = PerLoop()
    if kind == "supervision":
        supervision = subject.build(plan.options)
    elif any(True for _ in model.gate.parameters()):
        supervision = ExitWeighted()
    return Objective(supervision, {"subject": subject.build(plan.options)} if kind == "regularizer" else {})


def loops_in_step(subject: ComponentUnderTest, model: LoopedModel, step: int, rows: slice) -> Loops:
    """Return the number of loops of some sequences in an optimizer step.

    A micro-batch runs the loops of its deepest sequence. Components for which ``train.loops_per: sequence`` is refused
    run the same number in every step.
    """
    needs_aligned_loops = model.max_depth is not None or not model.depth_free or subject.traits.get("uses_total")
    if step % 2 == 0 or needs_aligned_loops:
        return Loops.fixed(LOOPS)
    own = torch.tensor(OWN_LOOPS[rows])
    deepest = int(own.max())
    return Loops(deepest, deepest, own)


def token_shares(batch: Batch, rows: slice) -> tuple[float, float]:
    """The shares of scored and of real tokens that the trainer passes to a micro-step, times the micro-steps."""
    part = batch.rows(rows)
    count = len(batch) / len(part)
    real, all_real = (int((b.positions < PAD).sum()) for b in (part, batch))
    return part.num_scored * count / batch.num_scored, real * count / all_real


def engine_variants(subject: ComponentUnderTest) -> Iterator[Variant]:
    """The default variant, and one for each other combination of parameters, scalar parameters and buffers."""
    seen = set()
    for variant in subject.variants:
        if subject.schema.kind not in MODULES:
            yield variant
            return
        try:
            model = build_model_around(subject, variant.options, device="meta", seed=None)
        except ValueError:  # the component rejects a guessed value
            continue
        traits = _tensor_kinds(find_instances(subject, model))
        if traits not in seen:
            seen.add(traits)
            yield variant


def _tensor_kinds(instances: list[nn.Module]) -> tuple[bool, bool, bool]:
    parameters = [parameter for instance in instances for parameter in instance.parameters()]
    return (
        bool(parameters),
        any(p.dim() == 0 for p in parameters),
        any(True for instance in instances for _ in instance.buffers()),
    )


def first_difference(
    left: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float
) -> tuple[str, float] | None:
    """The first tensor whose difference exceeds ``tolerance`` times its largest value, or 1; NaN counts as infinite."""
    for name, value in right.items():
        actual, expected = left[name].double().flatten(), value.double().flatten()
        if expected.numel():
            gap = (actual - expected).abs().max() / expected.abs().max().clamp(min=1)
            if (size := float(torch.nan_to_num(gap, nan=float("inf")))) > tolerance:
                return name, size
    return None
