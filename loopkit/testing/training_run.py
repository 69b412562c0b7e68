"""A few steps of the training engine with the component under test in its place."""

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
from loopkit.testing.case import MODULES, NotChecked
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, build_model_around, pad_batch, uneven_batch
from loopkit.testing.recording import find_instances
from loopkit.testing.variants import Variant

if TYPE_CHECKING:
    from loopkit.training.distributed.process_group import Process

TRAINED = (*MODULES, "init", "supervision", "regularizer", "optimizer")
"""Kinds that take part in a step of the engine."""

OWN_LOOPS = (LOOPS, 1, 2, 2)
"""Loops of each sequence in every second step."""

RATE = 1e-2
RULE = AdamW(weight_decay=0.1, eps=1e-3)
"""A large eps: at its usual value Adam makes a whole step of the rounding error of a gradient near zero."""


@dataclass(frozen=True)
class TrainingPlan:
    """How a component is trained.

    Args:
        options: The component's; ``None``: the default variant's.
        micro: Sequences of each micro-step on each rank, of 4 in a step.
        steps: Optimizer steps; the loops are those of ``OWN_LOOPS`` in every second one.
        padding: Columns of padding that are added to every batch.
        frozen: Whether the component's own parameters are not trained.
    """

    options: Mapping[str, Any] | None = None
    micro: int = 4
    steps: int = 2
    padding: int = 0
    frozen: bool = False


def join_alone() -> Process:
    """This process as the only rank, on the CPU.

    Raises:
        NotChecked: If DeepSpeed has been started for another device in this program.
    """
    from loopkit.training.distributed.deepspeed_import import deepspeed
    from loopkit.training.distributed.process_group import join

    process = join("cpu")
    try:
        deepspeed(process.device)
    except UserError as error:
        raise NotChecked(f"the training engine cannot run here: {error}") from None
    if process.world > 1:
        raise NotChecked("this program is itself one of several ranks")
    return process


def train(subject: ComponentUnderTest, plan: TrainingPlan, process: Process) -> dict[str, Tensor]:
    """Train a tiny model with the subject; saved buffers and then parameters afterwards, by name."""
    from loopkit.data.batch_sizes import BatchSizes
    from loopkit.model.parameter_groups import parameter_groups
    from loopkit.training.checkpointing import rng
    from loopkit.training.step.deepspeed_config import deepspeed_config
    from loopkit.training.step.engine import Engine
    from loopkit.training.step.module import TrainingModule

    around = build_model_around(subject, None if subject.schema.kind not in _IN_A_MODEL else plan.options)
    own = {id(p) for part in find_instances(subject, around) for p in part.parameters()}
    for parameter in around.parameters():
        parameter.requires_grad_(not (plan.frozen and id(parameter) in own))
    module = TrainingModule(around.train(), _objective(subject, plan, around), seed=0, precision="fp32")
    rule = subject.build(plan.options) if subject.schema.kind == "optimizer" else RULE
    sizes = BatchSizes.of(len(OWN_LOOPS), plan.micro, process.world)
    engine = Engine(module, rule.build(parameter_groups(module)), deepspeed_config(sizes, 1.0, {}), process)
    rng.seed_all(0, process.rank)
    try:
        for number in range(plan.steps):
            whole = uneven_batch(seed=number)
            whole = pad_batch(whole, right=plan.padding) if plan.padding else whole
            for micro_step in range(sizes.accumulation):
                rows = sizes.rows(process.rank, micro_step)
                engine.micro_step(whole.rows(rows), loops_in_step(number, rows), number, *token_shares(whole, rows))
                if micro_step + 1 < sizes.accumulation:
                    engine.next_micro_step()
            engine.update(RATE)
    finally:
        engine.close()
    parameters = dict(module.named_parameters())
    state = module.state_dict()
    return {name: state[name].clone() for name in sorted(state, key=lambda name: name in parameters)}


_IN_A_MODEL = (*MODULES, "init")


def _objective(subject: ComponentUnderTest, plan: TrainingPlan, around: LoopedModel) -> Objective:
    kind = subject.schema.kind
    supervision: Supervision = PerLoop()
    if kind == "supervision":
        supervision = subject.build(plan.options)
    elif any(True for _ in around.gate.parameters()):
        supervision = ExitWeighted()
    return Objective(supervision, {"subject": subject.build(plan.options)} if kind == "regularizer" else {})


def loops_in_step(number: int, rows: slice) -> Loops:
    """The loops of some sequences in an optimizer step."""
    if number % 2 == 0:
        return Loops.fixed(LOOPS)
    return Loops(LOOPS, LOOPS, torch.tensor(OWN_LOOPS[rows]))


def token_shares(whole: Batch, rows: slice) -> tuple[float, float]:
    """What the trainer tells a micro-step of its part of the scored and of the real tokens."""
    part = whole.rows(rows)
    count = len(whole) / len(part)
    real, all_real = (int((batch.positions < PAD).sum()) for batch in (part, whole))
    return part.num_scored * count / whole.num_scored, real * count / all_real


def engine_variants(subject: ComponentUnderTest) -> Iterator[Variant]:
    """The default, and those that are of another nature for an engine: scalar parameters, buffers, no parameters."""
    seen = set()
    for variant in subject.variants:
        if subject.schema.kind not in MODULES:
            yield variant
            return
        try:
            around = build_model_around(subject, variant.options, device="meta", seed=None)
        except ValueError:  # a guessed value that it refuses
            continue
        nature = _nature(find_instances(subject, around))
        if nature not in seen:
            seen.add(nature)
            yield variant


def _nature(parts: list[nn.Module]) -> tuple[bool, bool, bool]:
    parameters = [parameter for part in parts for parameter in part.parameters()]
    return bool(parameters), any(p.dim() == 0 for p in parameters), any(True for part in parts for _ in part.buffers())


def first_difference(
    left: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float
) -> tuple[str, float] | None:
    """The first tensor that differs by more than so much of its largest number, or of 1; NaN counts as infinite."""
    for name, value in right.items():
        ours, theirs = left[name].double().flatten(), value.double().flatten()
        if theirs.numel():
            gap = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)
            if (size := float(torch.nan_to_num(gap, nan=float("inf")))) > tolerance:
                return name, size
    return None
