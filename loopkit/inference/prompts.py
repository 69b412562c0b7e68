"""Prompts as a batch.

Dims: B sequences, T tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from loopkit.errors import UserError
from loopkit.loop import IGNORE, PAD, Batch, LoopedModelProtocol
from loopkit.plural import plural

Ids = Sequence[int]


def left_pad(prompts: Sequence[Ids], sample: Sequence[int], device: torch.device | str) -> Batch:
    """Pad prompts on the left, so that all sequences end at the same index.

    Positions start at 0 at the first real token, so that padding does not change the result.

    Args:
        prompts: Token ids, at least one per prompt.
        sample: Key of each sequence's random numbers.
        device: Device of the batch.
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


def sample_key(prompt: Ids) -> int:
    """Return the key of a prompt's random numbers: a hash of its tokens, so that it is the same in any batch."""
    text = ",".join(str(int(token)) for token in prompt)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def max_positions(model: LoopedModelProtocol) -> int | None:
    """Return the number of positions of a model; ``None``: unlimited."""
    limit: int | None = model.position.limit  # type: ignore[attr-defined]
    return limit


def check_prompts(model: LoopedModelProtocol, prompts: Sequence[Ids]) -> None:
    """Reject prompts that a model cannot continue.

    Raises:
        UserError: If a prompt is empty, has a token outside of the vocabulary, or leaves no position for a completion.
    """
    limit = max_positions(model)
    for number, prompt in enumerate(prompts, 1):
        if len(prompt) == 0:
            raise UserError(f"prompt {number} has 0 tokens; generation needs at least one")
        if not 0 <= min(prompt) <= max(prompt) < model.vocabulary:
            raise UserError(f"prompt {number} has a token outside of the vocabulary, 0 to {model.vocabulary - 1}")
        if limit is not None and len(prompt) >= limit:
            raise UserError(
                f"prompt {number} has {plural(len(prompt), 'token')}, and the model has {limit} positions for prompt "
                "and completion. Shorten the prompt, or train with a longer data.length or another model.position"
            )
