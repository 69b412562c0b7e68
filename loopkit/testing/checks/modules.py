"""Modules of a model: first weights, shapes, precision, and arguments left alone."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.model import LoopedModel, initialise
from loopkit.testing.case import MODULES, Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import (
    LOOPS,
    ROWS,
    VOCABULARY,
    WIDTH,
    build_model_around,
    change_tokens,
    compute_logits,
    default_model,
    random_batch,
)
from loopkit.testing.recording import Call, output_tensors, record_calls

KEEP_THE_STREAM = ("block", "core", "start", "injection", "carry", "placement")
"""Kinds whose result is the stream itself, and so has its precision whatever autocast does inside."""


@rule("first weights", MODULES, after=("meta",))
def first_weights(subject: ComponentUnderTest) -> None:
    """Its parameters and buffers get numbers when a model is initialised, the same for the same seed."""
    hint = "write reset_parameters(), which sets what is neither nn.Linear nor nn.Embedding; init calls it"
    with report_as_violation("a model with it cannot be built", "see the message"):
        around = build_model_around(subject, seed=None)
    with report_as_violation("it has parameters or buffers that nothing sets", hint):
        initialise(around, seed=0, mean_loops=LOOPS)
    unset = [name for name, value in around.state_dict().items() if not value.isfinite().all()]
    unset += [name for name, value in around.named_buffers() if not value.isfinite().all() and name not in unset]
    if unset:
        raise Violation(f"'{unset[0]}' has no first value: it is not finite after initialisation", hint=hint)
    again = build_model_around(subject, seed=0).state_dict()
    differ = [name for name, value in around.state_dict().items() if not torch.equal(value, again[name])]
    if differ:
        raise Violation(f"equal seeds give different first values of '{differ[0]}'", hint="draw from torch's generator")


@rule("shape", MODULES, after=("first weights",))
def shape(subject: ComponentUnderTest) -> None:
    """What it returns has the shape that its kind promises."""
    for call in record_calls(subject).calls:
        first = next(iter(call.given.values()))
        found: list[Tensor | None] = [*output_tensors(call.gave)]
        for given, gave in zip(_promised(subject.schema.kind, call, first), found or [None], strict=False):
            if gave is None or not _fits(given, gave):
                seen = f"{list(gave.shape) if gave is not None else type(call.gave).__name__}, not {_letters(given)}"
                hint = f"for {list(first.shape)} given to {call.method}(); see the contract in components/"
                raise Violation("its result has a wrong shape", seen, hint)


def _promised(kind: str, call: Call, first: Tensor) -> list[list[int | None]]:
    if kind == "gate":
        return [list(first.shape[:2])]
    if kind == "start":
        return [[*first.shape[:2], None, first.shape[-1]]]
    if call.method == "emit":
        return [[*first.shape[:2], WIDTH]]
    if call.method == "rotate":
        return [list(tensor.shape) for tensor in list(call.given.values())[:2]]
    return [list(first.shape)]


def _fits(promised: list[int | None], gave: Tensor) -> bool:
    """Whether a shape is the promised one, where ``None`` is any number of further streams."""
    if None in promised:
        return list(gave.shape[:2]) == promised[:2] and gave.shape[-1] == promised[-1] and gave.dim() >= 3
    return list(gave.shape) == promised


def _letters(promised: list[int | None]) -> str:
    return "[" + ", ".join("*S" if size is None else str(size) for size in promised) + "]"


@rule("dtype", MODULES, after=("shape",))
def dtype(subject: ComponentUnderTest) -> None:
    """It returns the precision it was given: fp32 in fp32, fp64 in fp64."""
    for precision in (torch.float32, torch.float64):
        for call in record_calls(subject, dtype=precision).calls:
            for gave in output_tensors(call.gave):
                if gave.dtype != precision:
                    hint = "no .half(), no .float(): use x.to(given.dtype), and loopkit.loop.widen() for at least fp32"
                    raise Violation(f"it returns {gave.dtype} where everything is {precision}", call.method, hint)


@rule("runs", MODULES, after=("dtype",))
def runs(subject: ComponentUnderTest) -> None:
    """A model with it runs, gives finite logits of every loop, and these depend on the tokens."""
    crash = record_calls(subject).crash
    with report_as_violation("a model with it does not run"):
        if crash is not None:
            raise crash
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        with report_as_violation(f"a model with it does not run{where}"):
            around = default_model(subject) if not variant.name else _other(subject, variant.options, variant.strict)
            found = None if around is None else compute_logits(around, random_batch())
        if found is None:
            continue
        if list(found.shape) != [LOOPS, ROWS, random_batch().tokens.shape[1], VOCABULARY]:
            raise Violation(f"the logits have a wrong shape{where}", str(list(found.shape)))
        if not found.isfinite().all():
            raise Violation(f"the logits are not finite{where}", f"{int((~found.isfinite()).sum())} of {found.numel()}")
    around = default_model(subject)
    moved = (
        (
            compute_logits(around, change_tokens(random_batch(), 0))
            - compute_logits(default_model(subject), random_batch())
        )
        .abs()
        .max()
        .item()
    )
    if moved < 1e-4:
        raise Violation("the logits do not depend on the tokens", f"other tokens move them by {moved:.1e}")


def _other(subject: ComponentUnderTest, options: dict[str, object], strict: bool) -> LoopedModel | None:
    """A model around another variant; ``None`` where a guessed value is refused, which is the component's right."""
    try:
        return build_model_around(subject, options)
    except ValueError:
        if strict:
            raise
        return None


@rule("in place", MODULES, after=("runs",))
def in_place(subject: ComponentUnderTest) -> None:
    """It leaves its arguments as they were."""
    for call in record_calls(subject).calls:
        for name, before in call.given.items():
            if not torch.equal(before, call.after[name]):
                hint = "x = x * y, not x *= y nor x.mul_(y): others still read what you were given"
                raise Violation(f"it changes its argument '{name}' in place", f"in {call.method}()", hint)


@rule("autocast", MODULES, after=("in place",))
def autocast(subject: ComponentUnderTest) -> None:
    """It works under bf16 autocast, forward and backward, and the stream keeps its precision there."""
    if subject.lacks("autocast"):
        return
    hint = "cast by hand where a product meets a tensor of another precision: x.to(self.weight.dtype)"
    recording = record_calls(subject, autocast=True)
    with report_as_violation("it breaks under bf16 autocast", hint):
        if recording.crash is not None:
            raise recording.crash
    for call in recording.calls:
        for gave in output_tensors(call.gave):
            if not gave.isfinite().all():
                raise Violation("it gives numbers that are not finite under bf16 autocast", call.method)
            narrow = gave.dtype not in (torch.float32, torch.float64)
            if narrow and (subject.schema.kind in (*KEEP_THE_STREAM, "gate") or call.method == "embed"):
                hint = "result.to(x.dtype): a residual stream of 10^4 does not survive bf16"
                raise Violation("it narrows the stream under bf16 autocast", f"{gave.dtype} from {call.method}()", hint)
    _backward_under_autocast(subject, hint)


def _backward_under_autocast(subject: ComponentUnderTest, hint: str) -> None:
    from loopkit.testing.harness import compute_loss, run_model

    around = default_model(subject).train()
    with report_as_violation("its backward breaks under bf16 autocast", hint):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = compute_loss(run_model(around, random_batch()))
        value.backward()
    bad = [name for name, p in around.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if bad:
        raise Violation("gradients are not finite under bf16 autocast", bad[0])
