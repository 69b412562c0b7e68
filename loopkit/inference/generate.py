"""Text, token by token, from token numbers to token numbers. Letters: B sequences, T tokens, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from loopkit.errors import UserError
from loopkit.inference.policy import FULL, not_cacheable, policy
from loopkit.inference.prompts import Ids, check_prompts, left_padded, positions_of, sample_of
from loopkit.inference.sampling import GREEDY, Sampling
from loopkit.loop import IGNORE, Batch, Cache, LoopedModelProtocol, Loops


@dataclass(frozen=True)
class Generated:
    """What a model added to a prompt.

    Args:
        tokens: The new tokens; one that ended it is the last of them.
        finished: Whether the model ended it, not the limit of tokens or positions.
    """

    tokens: tuple[int, ...]
    finished: bool


Watch = Callable[[int, Sequence[int]], bool]
"""Told the number of a prompt and its new tokens after each one; true ends it there."""


@torch.no_grad()
def generate(
    model: LoopedModelProtocol,
    prompts: Sequence[Ids],
    *,
    depth: int,
    max_tokens: int | Sequence[int],
    eos: Collection[int] = (),
    watch: Watch = lambda number, tokens: False,
    done: Callable[[int, Generated], None] = lambda number, generated: None,
    sampling: Sampling = GREEDY,
    sample: Sequence[int] | None = None,
    cache: str | None = FULL,
) -> list[Generated]:
    """Go on from every prompt with loops of one depth, all in one batch.

    A prompt gives the same tokens alone and in any batch, up to the rounding of sums: padding is looked at by nobody,
    and random numbers belong to (seed, sample, position). A sequence that ends leaves the batch.

    Args:
        model: In evaluation mode.
        prompts: Token numbers.
        depth: Loops, >= 1.
        max_tokens: Most new tokens, for all or one for each; the model's positions may end a sequence before.
        eos: Tokens that end a sequence.
        watch: Ends a sequence for other reasons.
        done: Called with the number of a prompt and what it gave, as soon as it has ended.
        sampling: How tokens are chosen.
        sample: Number of each sequence, for its random numbers; ``None``: one from the prompt's tokens, so that equal
            prompts give equal answers.
        cache: Policy by which keys and values are kept; ``None`` computes everything again for each token, as do
            models with a component that cannot be cached.

    Raises:
        ValueError: If a prompt cannot be gone on from, the model cannot run at this depth or is in training, or there
            is no such policy.
    """
    if model.training:
        raise UserError("generate: the model is in training mode, in which dropout changes what it says; call .eval()")
    if depth < 1:
        raise UserError(f"generate: depth must be at least 1, not {depth}")
    check_prompts(model, prompts)
    if not prompts:
        return []
    budget = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    if min(budget) < 1:
        raise UserError(f"generate: max_tokens must be at least 1, not {min(budget)}")
    limit = positions_of(model)
    if limit is not None:
        budget = [min(most, limit - len(prompt)) for most, prompt in zip(budget, prompts, strict=True)]
    sample = [sample_of(prompt) for prompt in prompts] if sample is None else sample
    running = _Running(model, prompts, sample, max(budget), depth, sampling, cache)
    found: dict[int, Generated] = {}
    while running.numbers:
        running.advance()
        over = []
        for row, number in enumerate(running.numbers):
            new = running.new[number]
            finished = new[-1] in eos or watch(number, new)
            if finished or len(new) >= budget[number]:
                found[number] = Generated(tuple(new), finished)
                done(number, found[number])
                over.append(row)
        running.drop(over)
    return [found[number] for number in range(len(prompts))]


@dataclass
class _Running:
    """The sequences that have not ended.

    Attributes:
        numbers: Which prompts they are, row by row.
        new: New tokens of every prompt.
        batch: What the next forward pass reads: all tokens at first and without a cache, else the newest alone.
    """

    model: LoopedModelProtocol
    prompts: Sequence[Ids]
    sample: Sequence[int]
    most: int
    depth: int
    sampling: Sampling
    policy: str | None
    numbers: list[int] = field(init=False)
    new: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = list(range(len(self.prompts)))
        self.new = {number: [] for number in self.numbers}
        self.device = next(self.model.parameters()).device  # type: ignore[attr-defined]
        self.batch = left_padded(self.prompts, self.sample, self.device)
        self.cache: Cache | None = None
        if self.policy is not None:
            make = policy(self.policy)
            if not not_cacheable(self.model):  # type: ignore[arg-type]
                self.cache = make(len(self.prompts), self.batch.tokens.shape[1] + self.most)

    def advance(self) -> None:
        """One token more for each."""
        t = self.model.run(
            self.batch,
            Loops.fixed(self.depth),
            keep=frozenset([self.depth]),
            noise_key=(self.sampling.seed, 0),
            cache=self.cache,
        )
        logits = self.model.head(t.readout(self.depth)[:, -1])
        places = self.batch.positions[:, -1] + 1
        tokens = self.sampling.choose(logits, self.batch.sample, places)
        for number, token in zip(self.numbers, tokens.tolist(), strict=True):
            self.new[number].append(token)
        self.batch = self._next(tokens[:, None], places[:, None])

    def _next(self, tokens: Tensor, places: Tensor) -> Batch:
        old = self.batch
        if self.cache is None:
            tokens = torch.cat([old.tokens, tokens], dim=1)
            places = torch.cat([old.positions, places], dim=1)
        in_order = True if self.cache is not None else old.in_order
        labels = torch.full_like(tokens, IGNORE)
        return Batch(tokens, labels, places, old.sample, in_order=in_order, num_scored=0)

    def drop(self, over: Sequence[int]) -> None:
        """Let the sequences in these rows go."""
        if not over:
            return
        kept = [row for row in range(len(self.numbers)) if row not in set(over)]
        self.numbers = [self.numbers[row] for row in kept]
        rows = torch.tensor(kept, dtype=torch.int64, device=self.device)
        self.batch = self.batch.rows(rows)
        if self.cache is not None:
            self.cache.narrow(rows)
