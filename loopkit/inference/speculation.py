"""Self-speculative decoding: tokens are drafted with few loops and verified with all of them in one pass.

    draft    x_1..x_n from q, the model after d loops
    verify   p_0..p_n, the model after K loops, in one pass over the newest token and the draft
    accept   x_i with probability min(1, p_{i-1}(x_i) / q_{i-1}(x_i)), up to the first rejection
    then     one more token: from max(p - q, 0), normalized, after a rejection, else from p_n

Greedy decoding is the limit in which p and q put all probability on one token: full depth's choice is accepted.

Dims: B sequences, n drafted tokens, V vocabulary.

Reference: arXiv:2211.17192. There the draft is another model; here it is the same one with fewer loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from loopkit.inference.active_sequences import ActiveSequences, NewToken
from loopkit.inference.prompts import max_positions
from loopkit.loop import Batch, Cache, Loops, Noise, Trajectory

MAX_TOKENS = 16
"""Most tokens that a draft grows to."""
_ACCEPT, _RESAMPLE = 2**31 + 1, 2**31 + 2
"""Streams of random numbers that are distinct from those of the loops and of sampling."""


@dataclass(frozen=True)
class Draft:
    """How tokens are drafted.

    Args:
        depth: Loops of the draft, less than those of the verification.
        tokens: Tokens of the first draft. The number grows by one after a draft that was accepted whole by every
            sequence, and shrinks by one if less than half was accepted.
    """

    depth: int
    tokens: int = 4


@dataclass
class SpeculativeSequences(ActiveSequences):
    """Sequences whose tokens are drafted; those of full depth are the same, up to rounding.

    Args:
        draft: How.
    """

    draft: Draft

    def __post_init__(self) -> None:
        super().__post_init__()
        self._num_drafted = self.draft.tokens
        self._limit = max_positions(self.model)
        self._is_prompt = True

    def advance(self) -> list[list[NewToken]]:
        assert self.cache is not None
        newest_B1, position_B1 = self.batch.tokens[:, -1:], self.batch.positions[:, -1:]
        count = self._num_drafted if not self._is_prompt else 0
        if self._limit is not None:
            count = min(count, self._limit - 1 - int(position_B1.max()))
        self._is_prompt = False
        if count < 1:
            tokens = self.choose(self._verify(self.batch, 1)[:, 0])
            self.extend(tokens)
            return [[NewToken(token, self.depth)] for token in tokens.tolist()]
        drafted_Bn, q_BnV = self._draft(self.cache, count)
        offsets = torch.arange(count + 1, device=self.device)
        positions = position_B1 + offsets
        batch = self.with_tokens(torch.cat([newest_B1, drafted_Bn], dim=1), positions)
        p_BTV = self.sampling.probabilities(self._verify(batch, count + 1))
        accepted_B, last_B = self._accept(drafted_Bn, q_BnV, p_BTV, positions)
        self.cache.mask_last(count - accepted_B)
        self._adapt(accepted_B, count)
        self.batch = self.with_tokens(last_B[:, None], position_B1 + accepted_B[:, None] + 1)
        return [
            [*(NewToken(token, self.depth, drafted=True) for token in tokens[:accepted]), NewToken(last, self.depth)]
            for tokens, accepted, last in zip(drafted_Bn.tolist(), accepted_B.tolist(), last_B.tolist(), strict=True)
        ]

    def _draft(self, cache: Cache, count: int) -> tuple[Tensor, Tensor]:
        """Draft tokens that the cache then drops, ``[B, n]``, and their probabilities, ``[B, n, V]``."""
        tokens, probabilities, batch = [], [], self.batch
        lengths = cache.lengths()
        for _ in range(count):
            t = self._pass(self.draft.depth)
            q_BV = self.sampling.probabilities(self.model.head(t.readout(self.draft.depth)[:, -1]))
            tokens.append(self.sampling.draw(q_BV, self.batch.sample, self.batch.positions[:, -1] + 1))
            probabilities.append(q_BV)
            self.extend(tokens[-1])
        cache.truncate(lengths)
        self.batch = batch
        return torch.stack(tokens, dim=1), torch.stack(probabilities, dim=1)

    def _verify(self, batch: Batch, last: int) -> Tensor:
        """Return the last logits of full depth, ``[B, last, V]``; read the draft's depth for a coda's slots."""

        def read(t: Trajectory, k: int) -> None:
            if k == self.draft.depth:
                t.readout(k, k)

        t = self._pass(self.depth, batch, read)
        return self.model.head(t.readout(self.depth)[:, -last:])

    def _pass(
        self,
        depth: int,
        batch: Batch | None = None,
        after_loop: Callable[[Trajectory, int], None] | None = None,
    ) -> Trajectory:
        return self.model.run(
            self.batch if batch is None else batch,
            Loops.fixed(depth),
            keep=frozenset([depth]),
            after_loop=after_loop,
            noise_key=(self.sampling.seed, 0),
            cache=self.cache,
        )

    def _accept(self, drafted_Bn: Tensor, q_BnV: Tensor, p_BTV: Tensor, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Return the number of accepted tokens of each sequence, ``[B]``, and the token that follows them, ``[B]``."""
        count, sample = drafted_Bn.shape[1], self.batch.sample
        p_Bn, q_Bn = (p.gather(2, drafted_Bn[..., None]).squeeze(2) for p in (p_BTV[:, :count], q_BnV))
        noise = Noise(self.sampling.seed, 0, sample=sample, positions=positions_BT[:, 1:]).fold(_ACCEPT)
        accepted_B = (noise.uniform() * q_Bn < p_Bn).cumprod(dim=1).sum(dim=1)
        rows = torch.arange(len(sample), device=self.device)
        # after an accepted draft nothing is subtracted
        q_BTV = torch.cat([q_BnV, torch.zeros_like(q_BnV[:, :1])], dim=1)
        left_BV = (p_BTV[rows, accepted_B] - q_BTV[rows, accepted_B]).clamp(min=0)
        last_positions_B = positions_BT[rows, accepted_B] + 1
        return accepted_B, self.sampling.draw(left_BV, sample, last_positions_B, stream=_RESAMPLE)

    def _adapt(self, accepted_B: Tensor, count: int) -> None:
        if bool((accepted_B == count).all()):
            self._num_drafted = min(count + 1, MAX_TOKENS)
        elif accepted_B.float().mean() < count / 2:
            self._num_drafted = max(count - 1, 1)
