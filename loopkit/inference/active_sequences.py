"""The sequences of a batch that are still being generated.

Dims: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from loopkit.inference.policy import get_policy, uncacheable_components
from loopkit.inference.prompts import Ids, left_pad
from loopkit.inference.sampling import Sampling
from loopkit.loop import IGNORE, Batch, Cache, LoopedModelProtocol, Loops


@dataclass(frozen=True)
class NewToken:
    """A generated token.

    Args:
        token: Its id.
        depth: Loops of the pass that gave it.
        drafted: Whether it was drafted at a smaller depth.
    """

    token: int
    depth: int
    drafted: bool = False


@dataclass
class ActiveSequences:
    """Sequences that get a token each by a pass of ``depth`` loops over the newest token.

    Args:
        model: In evaluation mode.
        prompts: Token ids.
        sample: Key of each sequence's random numbers.
        room: Maximum number of new tokens.
        depth: Loops.
        sampling: Rule by which tokens are chosen.
        policy: Name of the cache policy; ``None``, or a component that cannot use one: each token recomputes all.

    Attributes:
        batch: Input of the next pass: all tokens at first and without a cache, otherwise only the newest.
    """

    model: LoopedModelProtocol
    prompts: Sequence[Ids]
    sample: Sequence[int]
    room: int
    depth: int
    sampling: Sampling
    policy: str | None
    batch: Batch = field(init=False)
    cache: Cache | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device  # type: ignore[attr-defined]
        self.batch = left_pad(self.prompts, self.sample, self.device)
        if self.policy is not None:
            build_cache = get_policy(self.policy)
            if not uncacheable_components(self.model):  # type: ignore[arg-type]
                self.cache = build_cache(len(self.prompts), self.batch.tokens.shape[1] + self.room)

    def advance(self) -> list[list[NewToken]]:
        """Generate at least one more token for each sequence, and return the new ones of each."""
        logits, depth_B = self.run()
        tokens = self.choose(logits)
        self.extend(tokens)
        return [[NewToken(*pair)] for pair in zip(tokens.tolist(), depth_B.tolist(), strict=True)]

    def run(self) -> tuple[Tensor, Tensor]:
        """Run the new tokens, and return the logits of the last one, ``[B, V]``, and its loops, ``[B]``."""
        t = self.model.run(
            self.batch,
            Loops.fixed(self.depth),
            keep=frozenset([self.depth]),
            noise_key=(self.sampling.seed, 0),
            cache=self.cache,
        )
        return self.model.head(t.readout(self.depth)[:, -1]), torch.full((len(self.batch),), self.depth)

    def choose(self, logits_BV: Tensor) -> Tensor:
        """Choose the token that follows the last one of each sequence, ``[B]``."""
        return self.sampling.choose(logits_BV, self.batch.sample, self.batch.positions[:, -1] + 1)

    def extend(self, tokens_B: Tensor) -> None:
        """Make the next batch: with a cache these tokens alone."""
        tokens, positions = tokens_B[:, None], self.batch.positions[:, -1:] + 1
        if self.cache is None:
            tokens = torch.cat([self.batch.tokens, tokens], dim=1)
            positions = torch.cat([self.batch.positions, positions], dim=1)
        self.batch = self.with_tokens(tokens, positions)

    def with_tokens(self, tokens_BT: Tensor, positions_BT: Tensor) -> Batch:
        """Build a batch of the same sequences."""
        in_order = True if self.cache is not None else self.batch.in_order
        labels = torch.full_like(tokens_BT, IGNORE)
        return Batch(tokens_BT, labels, positions_BT, self.batch.sample, in_order=in_order, num_scored=0)

    def narrow(self, rows: Tensor) -> None:
        """Keep only the sequences in these rows, ``[b]`` int64."""
        self.batch = self.batch.rows(rows)
        if self.cache is not None:
            self.cache.narrow(rows)
