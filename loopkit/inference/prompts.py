"""Prompts as a batch. Letters: B sequences, T tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from loopkit.errors import UserError
from loopkit.loop import IGNORE, PAD, Batch, LoopedModelProtocol

Ids = Sequence[int]


def left_padded(prompts: Sequence[Ids], sample: Sequence[int], device: torch.device | str) -> Batch:
    """Sequences that end together; what comes before the shorter ones is padding.

    Positions start at 0 at the first real token, so that padding changes nothing.

    Args:
        prompts: Token numbers, at least one each.
        sample: Number of each sequence, which keys its random numbers.
        device: Where the batch goes.
    """
    longest = max(map(len, prompts))
    tokens = torch.zeros(len(prompts), longest, dtype=torch.int64)
    positions = torch.full_like(tokens, PAD)
    for row, prompt in enumerate(prompts):
        first = longest - len(prompt)
        tokens[row, first:] = torch.as_tensor(prompt, dtype=torch.int64)
        positions[row, first:] = torch.arange(len(prompt))
    labels = torch.full_like(tokens, IGNORE)
    return Batch(tokens, labels, positions, torch.tensor(sample, dtype=torch.int64), num_scored=0).to(device)


def sample_of(prompt: Ids) -> int:
    """The number that a prompt goes by: from its tokens alone, so that its random numbers are its own in any batch."""
    text = ",".join(str(int(token)) for token in prompt)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def positions_of(model: LoopedModelProtocol) -> int | None:
    """How many positions a model has; ``None``: there is no end to them."""
    limit: int | None = model.position.limit  # type: ignore[attr-defined]
    return limit


def check_prompts(model: LoopedModelProtocol, prompts: Sequence[Ids]) -> None:
    """Refuse prompts that a model cannot go on from.

    Raises:
        ValueError: If one is empty, has a token that the model does not know, or leaves no position for an answer.
    """
    limit = positions_of(model)
    for number, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise UserError(f"prompt {number} has no tokens; a model goes on from one token at least")
        if not 0 <= min(prompt) <= max(prompt) < model.vocabulary:
            raise UserError(f"prompt {number} has a token outside of the vocabulary, 0 to {model.vocabulary - 1}")
        if limit is not None and len(prompt) >= limit:
            raise UserError(
                f"prompt {number} is {len(prompt)} tokens long, and the model has {limit} positions, the answer's "
                "included; shorten it, or train with a longer data.length or another model.position"
            )
