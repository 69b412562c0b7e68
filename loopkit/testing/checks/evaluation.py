"""Modules of a model in evaluation: nothing kept, nothing drawn, and a result that belongs to its token alone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from loopkit.loop import Batch, FullCache, Loops, update_buffers
from loopkit.model import load_weights, save_weights
from loopkit.testing.case import MODULES, NotChecked, Violation, report_as_violation, rule
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

TOLERANCE = 2e-5
"""Of fp32 logits of order 1, summed in another order."""

BEFORE = ("in place", "keeps nothing", "seed")


def difference(left: Tensor, right: Tensor) -> float:
    """Largest difference of logits, relative to their size where that is above 1; NaN counts as infinite."""
    gap = (left - right).abs().max() / right.abs().max().clamp(min=1)
    return float(torch.nan_to_num(gap, nan=float("inf")))


@rule("keeps nothing", MODULES, after=("in place",))
@torch.no_grad()
def keeps_nothing(subject: ComponentUnderTest) -> None:
    """In evaluation it keeps nothing from one call to the next."""
    around = default_model(subject)
    before = {name: value.clone() for name, value in [*around.named_parameters(), *around.named_buffers()]}
    first = compute_logits(around, random_batch())
    compute_logits(around, random_batch(seed=1))
    again = compute_logits(around, random_batch())
    hint = "let buffers change only `if self.training`, and pass what a loop needs through its arguments"
    if not torch.equal(first, again):
        seen = f"the same tokens give logits that differ by {difference(again, first):.1e} after another batch"
        raise Violation("it keeps state between calls in evaluation", seen, hint)
    now = dict([*around.named_parameters(), *around.named_buffers()])
    changed = [name for name, value in before.items() if not torch.equal(value, now[name])]
    if changed:
        raise Violation(f"'{changed[0]}' changes in evaluation", hint=hint)


@rule("seed", MODULES, after=("in place",))
@torch.no_grad()
def seed(subject: ComponentUnderTest) -> None:
    """In evaluation its numbers follow from the seed alone, and from no global random state."""
    first, other = (compute_logits(default_model(subject), random_batch(), seed=number) for number in (1, 2))
    hint = "draw from step.noise, which is keyed by seed, step, sample and position, and from nothing else"
    if not torch.equal(first, other):
        raise Violation(
            "its numbers do not follow from the seed", f"logits differ by {difference(other, first):.1e}", hint
        )
    keyed = compute_logits(default_model(subject), random_batch(), noise_key=(7, 0))
    draws, stated = not torch.equal(keyed, first), subject.traits.get("noise", False)
    if draws and stated is not True:
        raise Violation("it draws from step.noise and does not say so", hint="@register(..., noise=True)")
    if stated is True and not draws:
        raise Violation("it says noise=True, and another seed gives the same numbers", hint=hint)
    if stated == "training":
        trained = [
            compute_logits(default_model(subject).train(), random_batch(), noise_key=(number, 0)) for number in (0, 7)
        ]
        if torch.equal(*trained):
            raise Violation('it says noise="training", and in training another seed gives the same numbers', hint=hint)


@rule("causal", MODULES, after=BEFORE)
@torch.no_grad()
def causal(subject: ComponentUnderTest) -> None:
    """A later token never changes an earlier logit, or its registration says where it does."""
    stated = subject.traits.get("causal", True)
    if stated is False:
        raise NotChecked("it says that it is not causal")
    for training in (False, True) if stated is True else (False,):
        found = [
            compute_logits(default_model(subject).train(training), batch)
            for batch in (random_batch(), change_tokens(random_batch(), 7))
        ]
        moved = difference(found[1][:, :, :7], found[0][:, :, :7])
        if moved > TOLERANCE:
            mode = "training" if training else "evaluation"
            seen = f"in {mode}, other tokens from place 7 on move logits before it by {moved:.1e}"
            hint = (
                "look for a mean, softmax, sort or convolution over tokens; mask it, or state it: "
                'causal="evaluation" if it is so in training only, causal=False if always'
            )
            raise Violation("a later token changes an earlier logit", seen, hint)


@rule("batch", MODULES, after=BEFORE)
@torch.no_grad()
def batch(subject: ComponentUnderTest) -> None:
    """In evaluation a sequence's numbers do not depend on the others in its batch."""
    data = random_batch(rows=4)
    whole = compute_logits(default_model(subject), data)
    parts = torch.cat([compute_logits(default_model(subject), part) for part in data.split(1)], dim=1)
    if (gap := difference(parts, whole)) > TOLERANCE:
        seen = f"alone and in a batch of 4, logits differ by {gap:.1e}"
        raise Violation("a sequence's numbers depend on its batch", seen, "look for a mean or a norm over dimension 0")


@rule("padding", MODULES, after=(*BEFORE, "causal", "batch"))
@torch.no_grad()
def padding(subject: ComponentUnderTest) -> None:
    """Padding before or after a sequence changes nothing of it, and gives finite numbers."""
    if subject.lacks("padding"):
        raise NotChecked("it says that it lacks padding")
    data = random_batch(length=6)
    plain = compute_logits(default_model(subject), data)
    for left, right in ((3, 0), (0, 3)):
        got = compute_logits(default_model(subject), pad_batch(data, left=left, right=right))[:, :, left : left + 6]
        if (gap := difference(got, plain)) > TOLERANCE:
            side = "before" if left else "after"
            hint = (
                "padding carries position PAD: look at step.positions, and at step.in_order before a plain causal mask"
            )
            raise Violation(f"padding {side} a sequence changes its logits", f"by {gap:.1e}", hint)


@rule("cache", MODULES, after=(*BEFORE, "causal", "padding"))
@torch.no_grad()
def cache(subject: ComponentUnderTest) -> None:
    """Decoding with a cache gives what one full pass gives."""
    if subject.lacks("cache"):
        raise NotChecked("it says that it lacks the cache")
    if subject.traits.get("causal", True) is False:
        raise NotChecked("it says that it is not causal")
    data, around = random_batch(), default_model(subject)
    whole, kept = compute_logits(around, data), FullCache(len(data))
    hint = (
        "ask step.cache.extend((step.k, self.layer), keys, values, step.positions, step.rows), and mask by positions; "
        'or state lacks={"cache"}'
    )
    with report_as_violation("it does not run with a cache", hint):
        pieces = [compute_logits(around, _piece(data, *ends), cache=kept) for ends in ((0, 5), (5, 6), (6, LENGTH))]
    if (gap := difference(torch.cat(pieces, dim=2), whole)) > TOLERANCE:
        raise Violation("decoding with a cache disagrees with the full pass", f"logits differ by {gap:.1e}", hint)


def _piece(data: Batch, first: int, last: int) -> Batch:
    tokens, labels, positions = (
        part[:, first:last].contiguous() for part in (data.tokens, data.labels, data.positions)
    )
    return Batch(tokens, labels, positions, data.sample)


@rule("depth", MODULES, after=BEFORE)
@torch.no_grad()
def depth(subject: ComponentUnderTest) -> None:
    """One pass of K loops holds every shorter one, or its registration says uses_total."""
    more = LOOPS + 1  # what enters loop 2 of 3 shows in loop 3, and there only against a longer run
    parts: dict[str, Any] = {"carry": "readout"} if subject.schema.kind == "readout" else {}  # only there it can matter
    around = build_model_around(subject, max_loops=more, **parts)
    if not around.depth_free:
        raise NotChecked("it says that its value inside the loop depends on the number of loops")
    t = run_model(around, random_batch(rows=2), Loops.fixed(more))
    for k in range(1, more):
        alone = run_model(around, random_batch(rows=2), Loops.fixed(k))
        if (gap := difference(t.logits(k, at=k), alone.logits(k))) > TOLERANCE:
            seen = f"loop {k} of {more} differs from a run of {k} by {gap:.1e}"
            hint = "look for step.loops.total, step.t or `at`; @register(..., uses_total=True) if it is meant so"
            raise Violation("what a loop computes depends on how many loops there are", seen, hint)


@rule("save and load", MODULES, after=(*BEFORE, "only tallies change"))
def save_and_load(subject: ComponentUnderTest) -> None:
    """After some training, a file holds everything that its numbers depend on."""
    around = default_model(subject).train()
    optimizer = torch.optim.SGD(around.parameters(), lr=0.01)
    for number in range(2):
        compute_loss(run_model(around, random_batch(seed=number))).backward()
        optimizer.step()
        update_buffers(around)
    around.eval()
    with torch.no_grad(), TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        save_weights(around, file)
        empty = build_model_around(subject, seed=None)
        load_weights(empty, file)
        restored, kept = compute_logits(empty, random_batch()), compute_logits(around, random_batch())
    if not torch.equal(restored, kept):
        seen = f"logits differ by {difference(restored, kept):.1e} after a way through a file"
        hint = "everything that counts must be a parameter or a buffer, and not persistent=False"
        raise Violation("a file does not hold all of its state", seen, hint)
