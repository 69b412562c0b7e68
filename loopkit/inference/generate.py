"""Autoregressive generation from token ids to token ids.

Dims: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from loopkit.components.exit import Exit
from loopkit.errors import UserError
from loopkit.inference.early_exit import exit_early
from loopkit.inference.policy import FULL, get_policy, uncacheable_components
from loopkit.inference.prompts import Ids, check_prompts, left_pad, max_positions, sample_key
from loopkit.inference.sampling import GREEDY, Sampling
from loopkit.inference.trajectory_view import TrajectoryView
from loopkit.loop import IGNORE, Batch, Cache, LoopedModelProtocol, Loops, Trajectory


@dataclass(frozen=True)
class Generated:
    """The tokens generated for a prompt.

    Args:
        tokens: The new tokens, including the one that ended the sequence.
        finished: Whether a stop ended the sequence, not the limit of tokens or positions.
        depths: Loops of the pass that gave each token.
    """

    tokens: tuple[int, ...]
    finished: bool
    depths: tuple[int, ...]

    @property
    def mean_depth(self) -> float:
        """Mean number of loops of a token."""
        return sum(self.depths) / len(self.depths)


@dataclass(frozen=True)
class ExitRule:
    """When generation stops looping.

    Args:
        exit: Scores a token after each loop.
        level: ``token``: the prompt runs all loops, and every new token stops on its own. ``sequence``: the mean score
            of the prompt's tokens decides once for the prompt and all its new tokens.
        threshold: Replaces the exit's own.

    A token has no keys and values in loops that it skipped: later tokens do not attend to it there.
    """

    exit: Exit
    level: Literal["token", "sequence"] = "token"
    threshold: float | None = None


Watch = Callable[[int, Sequence[int]], bool]
"""Called after each token with the index of a prompt and its new tokens; ``True`` ends the sequence."""


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
    exit: ExitRule | None = None,
) -> list[Generated]:
    """Generate tokens for every prompt at one depth, or with early exit, all in one batch.

    The tokens of a prompt do not depend on the rest of the batch, up to the rounding of sums: attention masks the
    padding, and random numbers are keyed by (seed, sample, position). A sequence that ends leaves the batch.

    Args:
        model: In evaluation mode.
        prompts: Token ids.
        depth: Loops, >= 1; with ``exit`` the maximum.
        max_tokens: Maximum number of new tokens, for all prompts or one per prompt; the model's positions may end a
            sequence earlier.
        eos: Tokens that end a sequence.
        watch: Ends a sequence for other reasons.
        done: Called with the index of a prompt and its tokens, as soon as the sequence has ended.
        sampling: Rule by which tokens are chosen.
        sample: Key of each sequence's random numbers; ``None``: a hash of the prompt's tokens, so that equal prompts
            give equal results.
        cache: Name of the cache policy. With ``None``, or a component that cannot use a cache, each token recomputes
            the whole sequence.
        exit: When to stop looping; ``None``: after ``depth`` loops.

    Raises:
        UserError: If a prompt cannot be continued, the model cannot run at this depth or is in training mode, the
            policy does not exist, or an exit has no cache to use.
    """
    if model.training:
        raise UserError(
            "generate: the model is in training mode, in which dropout changes its output; call model.eval()"
        )
    if depth < 1:
        raise UserError(f"generate: depth must be at least 1, not {depth}")
    check_prompts(model, prompts)
    if not prompts:
        return []
    budget = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    if min(budget) < 1:
        raise UserError(f"generate: max_tokens must be at least 1, not {min(budget)}")
    limit = max_positions(model)
    if limit is not None:
        budget = [min(tokens, limit - len(prompt)) for tokens, prompt in zip(budget, prompts, strict=True)]
    sample = [sample_key(prompt) for prompt in prompts] if sample is None else sample
    active = _ActiveSequences(model, prompts, sample, max(budget), depth, sampling, cache, exit)
    results: dict[int, Generated] = {}
    while active.numbers:
        active.advance()
        ended = []
        for row, number in enumerate(active.numbers):
            new = active.new[number]
            finished = new[-1] in eos or watch(number, new)
            if finished or len(new) >= budget[number]:
                results[number] = Generated(tuple(new), finished, tuple(active.depths[number]))
                done(number, results[number])
                ended.append(row)
        active.drop(ended)
    return [results[number] for number in range(len(prompts))]


@dataclass
class _ActiveSequences:
    """The sequences that have not ended.

    Attributes:
        numbers: Index of each row's prompt.
        new: New tokens of every prompt.
        depths: Loops of the pass that gave each of them.
        batch: Input of the next forward pass: all tokens at first and without a cache, otherwise only the newest.
    """

    model: LoopedModelProtocol
    prompts: Sequence[Ids]
    sample: Sequence[int]
    max_new: int
    depth: int
    sampling: Sampling
    policy: str | None
    exit: ExitRule | None
    numbers: list[int] = field(init=False)
    new: dict[int, list[int]] = field(init=False)
    depths: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = list(range(len(self.prompts)))
        self.new = {number: [] for number in self.numbers}
        self.depths = {number: [] for number in self.numbers}
        self.device = next(self.model.parameters()).device  # type: ignore[attr-defined]
        self.batch = left_pad(self.prompts, self.sample, self.device)
        self.cache: Cache | None = None
        if self.policy is not None:
            build_cache = get_policy(self.policy)
            if not (parts := uncacheable_components(self.model)):  # type: ignore[arg-type]
                self.cache = build_cache(len(self.prompts), self.batch.tokens.shape[1] + self.max_new)
        if self.exit is not None and self.cache is None:
            reason = "the cache is off" if self.policy is None else f"{' and '.join(parts)} cannot use one"
            raise UserError(f"generate: early exit needs a key-value cache, but {reason}; omit the exit")

    def advance(self) -> None:
        """Generate one more token for each sequence."""
        logits, depth_B = self._run()
        positions = self.batch.positions[:, -1] + 1
        tokens = self.sampling.choose(logits, self.batch.sample, positions)
        for number, token, depth in zip(self.numbers, tokens.tolist(), depth_B.tolist(), strict=True):
            self.new[number].append(token)
            self.depths[number].append(depth)
        self.batch = self._next_batch(tokens[:, None], positions[:, None])

    def _run(self) -> tuple[Tensor, Tensor]:
        """Run the new tokens, and return the logits of the last one, ``[B, V]``, and its loops, ``[B]``."""
        is_prompt = not self.new[self.numbers[0]]
        if self.exit is None or (self.exit.level == "token" and is_prompt):
            t = self.model.run(
                self.batch,
                Loops.fixed(self.depth),
                keep=frozenset([self.depth]),
                noise_key=(self.sampling.seed, 0),
                cache=self.cache,
                after_loop=None if self.exit is None else _read_loop,
            )
            return self.model.head(t.readout(self.depth)[:, -1]), torch.full((len(self.batch),), self.depth)
        rule: Exit = self.exit.exit
        threshold = self.exit.threshold
        if self.exit.level == "sequence" and not is_prompt:
            own_depth_B = torch.tensor([self.depths[number][0] for number in self.numbers], device=self.device)
            rule, threshold = _OwnDepth(own_depth_B), 0.0
        exited = exit_early(
            self.model,
            self.batch,
            rule,
            self.depth,
            threshold=threshold,
            answer=lambda t, k: self.model.head(t.readout(k)[:, -1]),
            cache=self.cache,
            noise_key=(self.sampling.seed, 0),
        )
        return exited.answer, exited.depth

    def _next_batch(self, tokens: Tensor, positions: Tensor) -> Batch:
        previous = self.batch
        if self.cache is None:
            tokens = torch.cat([previous.tokens, tokens], dim=1)
            positions = torch.cat([previous.positions, positions], dim=1)
        in_order = True if self.cache is not None else previous.in_order
        labels = torch.full_like(tokens, IGNORE)
        return Batch(tokens, labels, positions, previous.sample, in_order=in_order, num_scored=0)

    def drop(self, ended: Sequence[int]) -> None:
        """Remove the sequences in these rows."""
        if not ended:
            return
        remaining = [row for row in range(len(self.numbers)) if row not in set(ended)]
        self.numbers = [self.numbers[row] for row in remaining]
        rows = torch.tensor(remaining, dtype=torch.int64, device=self.device)
        self.batch = self.batch.rows(rows)
        if self.cache is not None:
            self.cache.narrow(rows)


class _OwnDepth(Exit):
    """Stops each sequence after its own number of loops, ``[B]``."""

    threshold = 0.0

    def __init__(self, depth_B: Tensor) -> None:
        self.depth_B = depth_B

    def score(self, t: Trajectory, k: int) -> Tensor:
        """The loops past the sequence's own number, ``[b, T]``."""
        index = t.index if isinstance(t, TrajectoryView) else None
        depth_b = self.depth_B if index is None else self.depth_B[index]
        return (k - depth_b)[:, None].expand(t.batch.tokens.shape).float()


def _read_loop(t: Trajectory, k: int) -> None:
    """Read a loop of the prompt, so that tokens that exit there find it in a coda's slots."""
    t.readout(k, k)
