"""Modules of a model in evaluation: no state, no random numbers, no dependence on other sequences or later tokens."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from loopkit.loop import Batch, FullCache, Loops, update_buffers
from loopkit.model import load_weights, save_weights
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import (
    LENGTH,
    LOOPS,
    build_model_around,
    change_tokens,
    compute_logits,
    compute_loss,
    default_model,
    pad_batch,
    random_batch,
    run_model,
)
from loopkit.testing.rules import MODULES, NotChecked, Violation, report_as_violation, rule

TOLERANCE = 2e-5
"""Allows for another order of summation, in fp32 logits of order 1."""

BEFORE = ("in place", "keeps nothing", "seed")


def difference(left: Tensor, right: Tensor) -> float:
    """Largest difference of logits, relative to their largest value if that exceeds 1; NaN counts as infinite."""
    gap = (left - right).abs().max() / right.abs().max().clamp(min=1)
    return float(torch.nan_to_num(gap, nan=float("inf")))


@rule("keeps nothing", MODULES, after=("in place",))
@torch.no_grad()
def keeps_nothing(subject: ComponentUnderTest) -> None:
    """In evaluation it keeps no state between calls."""
    model = default_model(subject)
    before = {name: value.clone() for name, value in [*model.named_parameters(), *model.named_buffers()]}
    first = compute_logits(model, random_batch())
    compute_logits(model, random_batch(seed=1))
    repeated = compute_logits(model, random_batch())
    hint = "change buffers only `if self.training`, and pass state between loops through arguments"
    if not torch.equal(first, repeated):
        seen = f"the same tokens give logits that differ by {difference(repeated, first):.1e} after another batch"
        raise Violation("it keeps state between calls in evaluation", seen, hint)
    after = dict([*model.named_parameters(), *model.named_buffers()])
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    if changed:
        raise Violation(f"'{changed[0]}' changes in evaluation", hint=hint)


@rule("seed", MODULES, after=("in place",))
@torch.no_grad()
def seed(subject: ComponentUnderTest) -> None:
    """In evaluation its result depends on the seed and not on a global random state."""
    first, other = (compute_logits(default_model(subject), random_batch(), seed=number) for number in (1, 2))
    hint = "draw random numbers only from step.noise, which is keyed by seed, step, sample and position"
    if not torch.equal(first, other):
        raise Violation(
            "its result does not follow from the seed", f"logits differ by {difference(other, first):.1e}", hint
        )
    keyed = compute_logits(default_model(subject), random_batch(), noise_key=(7, 0))
    draws, stated = not torch.equal(keyed, first), subject.traits.get("noise", False)
    if draws and stated is not True:
        raise Violation("it draws from step.noise without stating noise=True", hint="@register(..., noise=True)")
    if stated is True and not draws:
        raise Violation("it states noise=True, but another seed gives the same result", hint=hint)
    if stated == "training":
        trained = [
            compute_logits(default_model(subject).train(), random_batch(), noise_key=(number, 0)) for number in (0, 7)
        ]
        if torch.equal(*trained):
            raise Violation('it states noise="training", but in training another seed gives the same result', hint=hint)


@rule("causal", MODULES, after=BEFORE)
@torch.no_grad()
def causal(subject: ComponentUnderTest) -> None:
    """A later token never changes an earlier logit, unless its registration states when it does."""
    stated = subject.traits.get("causal", True)
    if stated is False:
        raise NotChecked("its registration states causal=False")
    for training in (False, True) if stated is True else (False,):
        original, changed = (
            compute_logits(default_model(subject).train(training), batch)
            for batch in (random_batch(), change_tokens(random_batch(), 7))
        )
        moved = difference(changed[:, :, :7], original[:, :, :7])
        if moved > TOLERANCE:
            mode = "training" if training else "evaluation"
            seen = f"in {mode}, other tokens from position 7 change earlier logits by {moved:.1e}"
            hint = (
                "look for a mean, softmax, sort or convolution over tokens; mask it, or state "
                'causal="evaluation" if only training looks ahead, causal=False otherwise'
            )
            raise Violation("a later token changes an earlier logit", seen, hint)


@rule("batch", MODULES, after=BEFORE)
@torch.no_grad()
def batch(subject: ComponentUnderTest) -> None:
    """In evaluation the result of a sequence does not depend on the other sequences of its batch."""
    data = random_batch(rows=4)
    expected = compute_logits(default_model(subject), data)
    parts = torch.cat([compute_logits(default_model(subject), part) for part in data.split(1)], dim=1)
    if (gap := difference(parts, expected)) > TOLERANCE:
        seen = f"logits in a batch of 1 and of 4 differ by {gap:.1e}"
        raise Violation(
            "the result of a sequence depends on its batch", seen, "look for a mean or a norm over dimension 0"
        )


@rule("padding", MODULES, after=(*BEFORE, "causal", "batch"))
@torch.no_grad()
def padding(subject: ComponentUnderTest) -> None:
    """Padding before or after a sequence does not change its logits."""
    if subject.lacks("padding"):
        raise NotChecked("its registration lists padding under lacks")
    data = random_batch(length=6)
    expected = compute_logits(default_model(subject), data)
    for left, right in ((3, 0), (0, 3)):
        actual = compute_logits(default_model(subject), pad_batch(data, left=left, right=right))[:, :, left : left + 6]
        if (gap := difference(actual, expected)) > TOLERANCE:
            side = "before" if left else "after"
            hint = "padding has the position PAD: mask by step.positions; use a plain causal mask only if step.in_order"
            raise Violation(f"padding {side} a sequence changes its logits", f"by {gap:.1e}", hint)


@rule("cache", MODULES, after=(*BEFORE, "causal", "padding"))
@torch.no_grad()
def cache(subject: ComponentUnderTest) -> None:
    """Decoding with a cache gives the logits of one full pass."""
    if subject.lacks("cache"):
        raise NotChecked("its registration lists cache under lacks")
    if subject.traits.get("causal", True) is False:
        raise NotChecked("its registration states causal=False")
    data, model = random_batch(), default_model(subject)
    expected, cache = compute_logits(model, data), FullCache(len(data))
    hint = (
        "call step.cache.extend((step.k, self.layer), keys, values, step.positions, step.rows), and mask by positions; "
        'or state lacks={"cache"}'
    )
    with report_as_violation("it does not run with a cache", hint):
        pieces = [compute_logits(model, _piece(data, *ends), cache=cache) for ends in ((0, 5), (5, 6), (6, LENGTH))]
    if (gap := difference(torch.cat(pieces, dim=2), expected)) > TOLERANCE:
        raise Violation("decoding with a cache differs from the full pass", f"logits differ by {gap:.1e}", hint)


def _piece(data: Batch, first: int, last: int) -> Batch:
    tokens, labels, positions = (
        part[:, first:last].contiguous() for part in (data.tokens, data.labels, data.positions)
    )
    return Batch(tokens, labels, positions, data.sample)


@rule("depth", MODULES, after=BEFORE)
@torch.no_grad()
def depth(subject: ComponentUnderTest) -> None:
    """One pass of K loops contains every shorter pass, or its registration states uses_total."""
    more = LOOPS + 1  # a dependence that enters at loop 2 shows only at loop 3 of a longer run
    parts: dict[str, Any] = (
        {"carry": "readout"} if subject.schema.kind == "readout" else {}
    )  # a readout affects the recurrence only through this carry
    model = build_model_around(subject, max_loops=more, **parts)
    if not model.depth_free:
        raise NotChecked("its registration states uses_total")
    t = run_model(model, random_batch(rows=2), Loops.fixed(more))
    for k in range(1, more):
        short = run_model(model, random_batch(rows=2), Loops.fixed(k))
        if (gap := difference(t.logits(k, at=k), short.logits(k))) > TOLERANCE:
            seen = f"loop {k} of {more} differs from a run of {k} by {gap:.1e}"
            hint = "look for step.loops.total, step.t or `at`; state @register(..., uses_total=True) if it is intended"
            raise Violation("the result of a loop depends on the number of loops", seen, hint)


@rule("last loop", ("readout",), after=(*BEFORE, "depth"))
@torch.no_grad()
def last_loop(subject: ComponentUnderTest) -> None:
    """The readout reads the last loop as it reads that loop in a longer pass, or its registration states uses_at."""
    model = default_model(subject)
    if model.reads_last_differently:
        raise NotChecked("its registration states uses_at")
    if not model.depth_free:
        raise NotChecked("its registration states uses_total")
    t = run_model(model, random_batch(rows=2), Loops.fixed(LOOPS))
    for k in range(1, LOOPS):
        if (gap := difference(t.logits(k, at=k), t.logits(k, at=LOOPS))) > TOLERANCE:
            seen = f"loop {k} read as the last differs from loop {k} of {LOOPS} by {gap:.1e}"
            hint = "look for a use of `at`; state @register(..., uses_at=True) if it is intended"
            raise Violation("the result of a loop depends on whether it is the last one", seen, hint)


@rule("save and load", MODULES, after=(*BEFORE, "only tallies change"))
def save_and_load(subject: ComponentUnderTest) -> None:
    """After some training, saved weights contain its whole state."""
    model = default_model(subject).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(2):
        compute_loss(run_model(model, random_batch(seed=number))).backward()
        optimizer.step()
        update_buffers(model)
    model.eval()
    with torch.no_grad(), TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        save_weights(model, file)
        loaded = build_model_around(subject, seed=None)
        load_weights(loaded, file)
        restored, expected = compute_logits(loaded, random_batch()), compute_logits(model, random_batch())
    if not torch.equal(restored, expected):
        seen = f"logits differ by {difference(restored, expected):.1e} after saving and loading"
        hint = "keep all state in parameters or in persistent buffers"
        raise Violation("saved weights do not contain its whole state", seen, hint)
