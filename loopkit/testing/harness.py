"""A tiny model around the component under test. Letters: K loops, B sequences, T tokens, V vocabulary."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from loopkit.loop import IGNORE, PAD, Batch, Loops, Trajectory
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import component
from loopkit.recipe.format import EmbeddingConfig, HeadConfig, ModelConfig, StageConfig
from loopkit.recipe.validation.combinations import PROVIDED_BY_TRAINER
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.variants import complete

WIDTH, VOCABULARY, LENGTH, LOOPS, ROWS = 16, 23, 12, 3, 3

BLOCK: dict[str, Any] = {"type": "transformer", "attention": {"type": "causal", "heads": 2}, "mlp": {"ratio": 2}}
PARTS: dict[str, Any] = {
    "position": "rope",
    "core": {"type": "stack", "layers": 2},
    "start": "embedding",
    "injection": "add",
    "carry": "identity",
    "readout": "norm",
    "gate": "none",
    "init": {"type": "normal", "std": 0.2},
}
"""What stands around a component; weights are large enough for every part to matter."""

OF_A_BLOCK = ("attention", "mlp", "norm", "placement")


def model_config(subject: ComponentUnderTest, options: Mapping[str, Any] | None = None, **parts: Any) -> ModelConfig:
    """The ``model`` section that has the subject in its place.

    Args:
        subject: What is tested; of a kind that no model has, the model is merely one that serves it.
        options: Of the subject; ``None``: the default variant's.
        parts: Other surroundings than usual, by kind.
    """
    wanted = {**PARTS, **_providers(subject), **parts, **subject.around}
    block = dict(BLOCK) if "block" not in wanted else wanted["block"]
    kind, choice = subject.schema.kind, subject.choice(options)
    if kind in OF_A_BLOCK:
        block = {**block, kind: choice}
    elif kind == "block":
        block = choice
    elif kind in PARTS:
        wanted[kind] = choice

    def make(kind: str, value: Any) -> Any:
        return component(kind, value, among=subject.catalog, width=WIDTH)

    return ModelConfig(
        width=WIDTH,
        embedding=EmbeddingConfig(),
        block=make("block", block),
        prelude=StageConfig(),
        coda=StageConfig(),
        head=HeadConfig(),
        **{kind: make(kind, wanted[kind]) for kind in PARTS},
    )


def _providers(subject: ComponentUnderTest) -> dict[str, Any]:
    """Components that bring what the subject needs and the trainer does not."""
    found: dict[str, Any] = {}
    for need in set(subject.traits.get("needs", ())) - PROVIDED_BY_TRAINER:
        for offer in subject.catalog.offers:
            if offer.kind in PARTS and offer.schema and need in offer.schema.traits.get("provides", ()):
                found[offer.kind] = {"type": offer.name, **complete(offer.schema, {}, subject.catalog)}
                break
    return found


def build_model_around(
    subject: ComponentUnderTest,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int | None = 0,
    device: str | None = None,
    max_loops: int = LOOPS,
    **parts: Any,
) -> LoopedModel:
    """A new model around the subject, in evaluation mode."""
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": max_loops}
    return build_model(model_config(subject, options, **parts), **sizes, seed=seed, device=device).eval()


def default_model(subject: ComponentUnderTest, dtype: torch.dtype = torch.float32, **parts: Any) -> LoopedModel:
    """A model around the subject's default variant, in evaluation mode: the same weights each time, and a copy of its
    own, so that what one check does to it never shows in another."""
    key = ("model", repr(sorted(parts.items())))
    if key not in subject.memo:
        subject.memo[key] = build_model_around(subject, **parts)
    original: LoopedModel = subject.memo[key]
    copied = _copy_module(original, {id(original.section): original.section})
    assert isinstance(copied, LoopedModel)
    return copied.to(dtype).eval()


def _copy_module(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """``copy.deepcopy`` of a module, three times as fast: it skips the empty dictionaries that torch keeps on each."""
    if id(module) in memo:
        copied: nn.Module = memo[id(module)]
        return copied
    copied = memo[id(module)] = module.__new__(type(module))
    for name, value in vars(module).items():
        if name == "_modules":
            value = {key: None if child is None else _copy_module(child, memo) for key, child in value.items()}
        elif type(value) in (dict, OrderedDict) and not value:
            value = type(value)()
        elif not isinstance(value, bool | int | float | str | None):
            value = copy.deepcopy(value, memo)
        vars(copied)[name] = value
    return copied


def random_batch(rows: int = ROWS, length: int = LENGTH, seed: int = 0) -> Batch:
    """Random tokens, each labelled with the next."""
    drawn = torch.randint(0, VOCABULARY, (rows, length + 1), generator=torch.Generator().manual_seed(seed))
    return Batch.of(drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous())


def uneven_batch(seed: int = 0) -> Batch:
    """Four sequences of very unequal lengths and contents, padding after them, not all of their tokens scored."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([8, 6, 3, 1])[:, None]
    drawn = torch.stack([torch.randint(0, most, (9,), generator=generator) for most in (3, 8, 15, VOCABULARY)])
    places = torch.arange(8).expand(4, 8)
    real = places < lengths
    scored = real & ((places > 2) | (lengths < 4))
    labels, positions = drawn[:, 1:].where(scored, IGNORE), places.where(real, PAD)
    return Batch(drawn[:, :-1].contiguous(), labels, positions, torch.arange(4) + 4 * seed)


def change_tokens(batch: Batch, first: int) -> Batch:
    """The same sequences with other tokens from place ``first`` on."""
    changed = batch.tokens.clone()
    changed[:, first:] = (changed[:, first:] + 1) % VOCABULARY
    return Batch.of(changed, batch.labels, sample=batch.sample)


def pad_batch(batch: Batch, *, left: int = 0, right: int = 0) -> Batch:
    """The same sequences with padding before or after them."""
    rows = len(batch)

    def wide(value: Tensor, fill: int) -> Tensor:
        return torch.cat([value.new_full((rows, left), fill), value, value.new_full((rows, right), fill)], dim=1)

    labels, places = wide(batch.labels, IGNORE), wide(batch.positions, PAD)
    return Batch(wide(batch.tokens, 5), labels, places, batch.sample)


def run_model(
    model: LoopedModel, batch: Batch, loops: Loops | None = None, *, seed: int = 0, **more: Any
) -> Trajectory:
    """One pass; the global random numbers are the same each time unless ``seed`` differs."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's; seeding every device there might be takes longer
        return model.run(batch, loops or Loops.fixed(LOOPS), **more)


def compute_logits(
    model: LoopedModel, batch: Batch, loops: Loops | None = None, *, seed: int = 0, **more: Any
) -> Tensor:
    """Logits of every loop, ``[K, B, T, V]``."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        t = model.run(batch, loops or Loops.fixed(LOOPS), **more)
        return torch.stack([t.logits(k) for k in range(1, t.reached + 1)])


def compute_loss(t: Trajectory) -> Tensor:
    """A loss that reads every loop, and the gate where there is one."""
    total = t.nll(range(1, t.reached + 1)).mean()
    if any(True for _ in t.model.gate.parameters()):
        total = total + torch.stack([t.gate(k) for k in range(1, t.reached + 1)]).mean()
    return total
