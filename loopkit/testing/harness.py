"""A tiny model with the component under test. Dims: K loops, B sequences, T tokens, V vocabulary."""

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
"""The rest of the model; its weights are large enough for every part to change the logits."""

OF_A_BLOCK = ("attention", "mlp", "norm", "placement")


def model_config(subject: ComponentUnderTest, options: Mapping[str, Any] | None = None, **parts: Any) -> ModelConfig:
    """The ``model`` section with the subject in its place.

    Args:
        subject: The component under test; if its kind is not part of a model, the model only serves as its input.
        options: Options of the subject; ``None``: those of the default variant.
        parts: Components that replace those of ``PARTS``, by kind.
    """
    choices = {**PARTS, **_providers(subject), **parts, **subject.surroundings}
    block = dict(BLOCK) if "block" not in choices else choices["block"]
    kind, choice = subject.schema.kind, subject.choice(options)
    if kind in OF_A_BLOCK:
        block = {**block, kind: choice}
    elif kind == "block":
        block = choice
    elif kind in PARTS:
        choices[kind] = choice

    def spec(kind: str, value: Any) -> Any:
        return component(kind, value, among=subject.catalog, width=WIDTH)

    return ModelConfig(
        width=WIDTH,
        embedding=EmbeddingConfig(),
        block=spec("block", block),
        prelude=StageConfig(),
        coda=StageConfig(),
        head=HeadConfig(),
        **{kind: spec(kind, choices[kind]) for kind in PARTS},
    )


def _providers(subject: ComponentUnderTest) -> dict[str, Any]:
    """Components that provide what the subject needs and the trainer does not provide."""
    providers: dict[str, Any] = {}
    for need in set(subject.traits.get("needs", ())) - PROVIDED_BY_TRAINER:
        for offer in subject.catalog.offers:
            if offer.kind in PARTS and offer.schema and need in offer.schema.traits.get("provides", ()):
                providers[offer.kind] = {"type": offer.name, **complete(offer.schema, {}, subject.catalog)}
                break
    return providers


def build_model_around(
    subject: ComponentUnderTest,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int | None = 0,
    device: str | None = None,
    max_loops: int = LOOPS,
    **parts: Any,
) -> LoopedModel:
    """Build a model with the subject, in evaluation mode."""
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": max_loops}
    return build_model(model_config(subject, options, **parts), **sizes, seed=seed, device=device).eval()


def default_model(subject: ComponentUnderTest, dtype: torch.dtype = torch.float32, **parts: Any) -> LoopedModel:
    """Copy the model with the default variant of the subject, in evaluation mode.

    Each call returns a new copy with the same weights, so checks cannot affect each other.
    """
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
    """Random tokens, each labelled with the next token."""
    ids_BT = torch.randint(0, VOCABULARY, (rows, length + 1), generator=torch.Generator().manual_seed(seed))
    return Batch.of(ids_BT[:, :-1].contiguous(), ids_BT[:, 1:].contiguous())


def uneven_batch(seed: int = 0) -> Batch:
    """Four sequences of unequal lengths with padding after them; only some of their tokens are scored."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([8, 6, 3, 1])[:, None]
    ids_BT = torch.stack([torch.randint(0, size, (9,), generator=generator) for size in (3, 8, 15, VOCABULARY)])
    positions = torch.arange(8).expand(4, 8)
    real = positions < lengths
    scored = real & ((positions > 2) | (lengths < 4))
    labels = ids_BT[:, 1:].where(scored, IGNORE)
    return Batch(ids_BT[:, :-1].contiguous(), labels, positions.where(real, PAD), torch.arange(4) + 4 * seed)


def change_tokens(batch: Batch, first: int) -> Batch:
    """Replace the tokens from position ``first``."""
    changed = batch.tokens.clone()
    changed[:, first:] = (changed[:, first:] + 1) % VOCABULARY
    return Batch.of(changed, batch.labels, sample=batch.sample)


def pad_batch(batch: Batch, *, left: int = 0, right: int = 0) -> Batch:
    """Add columns of padding before or after the sequences."""
    rows = len(batch)

    def pad(value: Tensor, fill: int) -> Tensor:
        return torch.cat([value.new_full((rows, left), fill), value, value.new_full((rows, right), fill)], dim=1)

    labels, positions = pad(batch.labels, IGNORE), pad(batch.positions, PAD)
    return Batch(pad(batch.tokens, 5), labels, positions, batch.sample)


def run_model(
    model: LoopedModel, batch: Batch, loops: Loops | None = None, *, seed: int = 0, **kwargs: Any
) -> Trajectory:
    """Run one forward pass with torch's global generator at ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            seed
        )  # torch.manual_seed would also seed every other backend, which is slower
        return model.run(batch, loops or Loops.fixed(LOOPS), **kwargs)


def compute_logits(
    model: LoopedModel, batch: Batch, loops: Loops | None = None, *, seed: int = 0, **kwargs: Any
) -> Tensor:
    """Compute the logits of every loop, ``[K, B, T, V]``."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        t = model.run(batch, loops or Loops.fixed(LOOPS), **kwargs)
        return torch.stack([t.logits(k) for k in range(1, t.reached + 1)])


def compute_loss(t: Trajectory) -> Tensor:
    """Compute a loss that depends on every loop, and on the gate if the model has one."""
    total = t.nll(range(1, t.reached + 1)).mean()
    if any(True for _ in t.model.gate.parameters()):
        total = total + torch.stack([t.gate(k) for k in range(1, t.reached + 1)]).mean()
    return total
