"""Modules of a model: initialisation, shapes, precision, and unchanged arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.model import LoopedModel, initialise
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import (
    LOOPS,
    ROWS,
    VOCABULARY,
    WIDTH,
    build_model_around,
    change_tokens,
    compute_logits,
    compute_loss,
    default_model,
    random_batch,
    run_model,
)
from loopkit.testing.recording import Call, output_tensors, record_calls
from loopkit.testing.rules import MODULES, Violation, report_as_violation, rule

STREAM_KINDS = ("block", "core", "start", "injection", "carry", "placement")
"""Kinds whose result is the residual stream, which keeps its precision under autocast."""


@rule("first weights", MODULES, after=("meta",))
def first_weights(subject: ComponentUnderTest) -> None:
    """Initialisation sets its parameters and buffers, to equal values for equal seeds."""
    hint = "define reset_parameters() to set all that is not in nn.Linear or nn.Embedding; init calls it"
    with report_as_violation("a model with it cannot be built"):
        model = build_model_around(subject, seed=None)
    with report_as_violation("it has parameters or buffers that nothing sets", hint):
        initialise(model, seed=0, mean_loops=LOOPS)
    unset = [name for name, value in model.state_dict().items() if not value.isfinite().all()]
    unset += [name for name, value in model.named_buffers() if not value.isfinite().all() and name not in unset]
    if unset:
        raise Violation(f"'{unset[0]}' is not finite after initialisation", hint=hint)
    repeated = build_model_around(subject, seed=0).state_dict()
    differ = [name for name, value in model.state_dict().items() if not torch.equal(value, repeated[name])]
    if differ:
        raise Violation(
            f"equal seeds give different initial values of '{differ[0]}'", hint="draw from torch's generator"
        )


@rule("shape", MODULES, after=("first weights",))
def shape(subject: ComponentUnderTest) -> None:
    """Its result has the shape that its kind requires."""
    for call in record_calls(subject).calls:
        first = next(iter(call.arguments.values()))
        outputs: list[Tensor | None] = [*output_tensors(call.result)]
        for expected, output in zip(
            _expected_shapes(subject.schema.kind, call, first), outputs or [None], strict=False
        ):
            if output is None or not _has_shape(output, expected):
                actual = list(output.shape) if output is not None else type(call.result).__name__
                seen = f"{actual}, not {_format_shape(expected)}"
                hint = f"{call.method}() received {list(first.shape)}; see the contract in loopkit/components"
                raise Violation("its result has a wrong shape", seen, hint)


def _expected_shapes(kind: str, call: Call, first: Tensor) -> list[list[int | None]]:
    if kind == "gate":
        return [list(first.shape[:2])]
    if kind == "start":
        return [[*first.shape[:2], None, first.shape[-1]]]
    if call.method == "emit":
        return [[*first.shape[:2], WIDTH]]
    if call.method == "rotate":
        return [list(tensor.shape) for tensor in list(call.arguments.values())[:2]]
    return [list(first.shape)]


def _has_shape(output: Tensor, expected: list[int | None]) -> bool:
    """Whether a tensor has the expected shape, in which ``None`` stands for any number of stream dimensions."""
    if None in expected:
        return list(output.shape[:2]) == expected[:2] and output.shape[-1] == expected[-1] and output.dim() >= 3
    return list(output.shape) == expected


def _format_shape(expected: list[int | None]) -> str:
    return "[" + ", ".join("*S" if size is None else str(size) for size in expected) + "]"


@rule("dtype", MODULES, after=("shape",))
def dtype(subject: ComponentUnderTest) -> None:
    """Its result has the dtype of its input: fp32 in fp32, fp64 in fp64."""
    for precision in (torch.float32, torch.float64):
        for call in record_calls(subject, dtype=precision).calls:
            for output in output_tensors(call.result):
                if output.dtype != precision:
                    hint = "no .half(), no .float(): use y.to(x.dtype), and loopkit.loop.widen() for at least fp32"
                    raise Violation(f"it returns {output.dtype} for an input of {precision}", call.method, hint)


@rule("runs", MODULES, after=("dtype",))
def runs(subject: ComponentUnderTest) -> None:
    """A model with it runs, and the logits of every loop are finite and depend on the tokens."""
    crash = record_calls(subject).crash
    with report_as_violation("a model with it does not run"):
        if crash is not None:
            raise crash
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        with report_as_violation(f"a model with it does not run{where}"):
            model = (
                default_model(subject) if not variant.name else _build_variant(subject, variant.options, variant.strict)
            )
            logits = None if model is None else compute_logits(model, random_batch())
        if logits is None:
            continue
        if list(logits.shape) != [LOOPS, ROWS, random_batch().tokens.shape[1], VOCABULARY]:
            raise Violation(f"the logits have a wrong shape{where}", str(list(logits.shape)))
        if not logits.isfinite().all():
            raise Violation(
                f"the logits are not finite{where}", f"{int((~logits.isfinite()).sum())} of {logits.numel()}"
            )
    model = default_model(subject)
    change = (
        (
            compute_logits(model, change_tokens(random_batch(), 0))
            - compute_logits(default_model(subject), random_batch())
        )
        .abs()
        .max()
        .item()
    )
    if change < 1e-4:
        raise Violation("the logits do not depend on the tokens", f"other tokens change them by {change:.1e}")


def _build_variant(subject: ComponentUnderTest, options: dict[str, object], strict: bool) -> LoopedModel | None:
    """Build a model with a variant; ``None`` if the component rejects a guessed value."""
    try:
        return build_model_around(subject, options)
    except ValueError:
        if strict:
            raise
        return None


@rule("in place", MODULES, after=("runs",))
def in_place(subject: ComponentUnderTest) -> None:
    """It does not change its arguments."""
    for call in record_calls(subject).calls:
        for name, before in call.arguments.items():
            if not torch.equal(before, call.arguments_after[name]):
                hint = "x = x * y, not x *= y nor x.mul_(y): other components still read the argument"
                raise Violation(f"it changes its argument '{name}' in place", f"in {call.method}()", hint)


@rule("autocast", MODULES, after=("in place",))
def autocast(subject: ComponentUnderTest) -> None:
    """It works under bf16 autocast, forward and backward, and the stream keeps its precision."""
    if subject.lacks("autocast"):
        return
    hint = "cast explicitly before an operation with a tensor of another dtype: x.to(self.weight.dtype)"
    recording = record_calls(subject, autocast=True)
    with report_as_violation("it fails under bf16 autocast", hint):
        if recording.crash is not None:
            raise recording.crash
    for call in recording.calls:
        for output in output_tensors(call.result):
            if not output.isfinite().all():
                raise Violation("its result is not finite under bf16 autocast", call.method)
            narrow = output.dtype not in (torch.float32, torch.float64)
            if narrow and (subject.schema.kind in (*STREAM_KINDS, "gate") or call.method == "embed"):
                hint = "result.to(x.dtype): bf16 cannot represent small updates of a large residual stream"
                raise Violation(
                    "it narrows the stream under bf16 autocast", f"{output.dtype} from {call.method}()", hint
                )
    _backward_under_autocast(subject, hint)


def _backward_under_autocast(subject: ComponentUnderTest, hint: str) -> None:
    model = default_model(subject).train()
    with report_as_violation("its backward pass fails under bf16 autocast", hint):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = compute_loss(run_model(model, random_batch()))
        value.backward()
    invalid = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if invalid:
        raise Violation("gradients are not finite under bf16 autocast", invalid[0])
