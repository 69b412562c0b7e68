"""Autoregressive generation from token ids to token ids.

Dims: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from loopkit.errors import UserError
from loopkit.inference.active_sequences import ActiveSequences, NewToken
from loopkit.inference.policy import FULL, uncacheable_components
from loopkit.inference.prompts import Ids, check_prompts, max_positions, sample_key
from loopkit.inference.sampling import GREEDY, Sampling
from loopkit.inference.speculation import MAX_TOKENS, Draft, SpeculativeSequences
from loopkit.inference.token_exit import ExitingSequences, ExitRule
from loopkit.loop import LoopedModelProtocol


@dataclass(frozen=True)
class Generated:
    """The tokens generated for a prompt.

    Args:
        tokens: The new tokens, including the one that ended the sequence.
        finished: Whether a stop ended the sequence, not the limit of tokens or positions.
        depths: Loops of the pass that gave each token.
        num_drafted: Number of tokens that were drafted at a smaller depth and accepted.
    """

    tokens: tuple[int, ...]
    finished: bool
    depths: tuple[int, ...]
    num_drafted: int = 0

    @property
    def mean_depth(self) -> float:
        """Mean number of loops of a token."""
        return sum(self.depths) / len(self.depths)


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
    draft: Draft | None = None,
) -> list[Generated]:
    """Generate tokens for every prompt at one depth, all in one batch.

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
        draft: Draft tokens with fewer loops, and verify several in one pass. Greedy tokens are those of full depth, up
            to rounding; sampled tokens have the same distribution.

    Raises:
        UserError: If a prompt cannot be continued, the model cannot run at this depth or is in training mode, the
            policy does not exist, an exit or a draft has no cache to use, or the draft is not less deep.
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
    room = max(budget) + (0 if draft is None else MAX_TOKENS)
    active = _build(model, prompts, sample, room, depth, sampling, cache, exit, draft)
    numbers = list(range(len(prompts)))
    new: list[list[NewToken]] = [[] for _ in prompts]
    results: dict[int, Generated] = {}
    while numbers:
        remaining = []
        for row, (number, tokens) in enumerate(zip(numbers, active.advance(), strict=True)):
            for token in tokens:
                new[number].append(token)
                ids = [token.token for token in new[number]]
                finished = ids[-1] in eos or watch(number, ids)
                if finished or len(ids) >= budget[number]:
                    results[number] = _to_generated(new[number], finished)
                    done(number, results[number])
                    break
            else:
                remaining.append(row)
        if len(remaining) < len(numbers):
            numbers = [numbers[row] for row in remaining]
            active.narrow(torch.tensor(remaining, dtype=torch.int64, device=active.device))
    return [results[number] for number in range(len(prompts))]


def _to_generated(tokens: Sequence[NewToken], finished: bool) -> Generated:
    return Generated(
        tokens=tuple(token.token for token in tokens),
        finished=finished,
        depths=tuple(token.depth for token in tokens),
        num_drafted=sum(token.drafted for token in tokens),
    )


def _build(
    model: LoopedModelProtocol,
    prompts: Sequence[Ids],
    sample: Sequence[int],
    room: int,
    depth: int,
    sampling: Sampling,
    cache: str | None,
    exit: ExitRule | None,
    draft: Draft | None,
) -> ActiveSequences:
    """Build the sequences of the chosen way of decoding; see ``generate``."""
    if exit is not None and draft is not None:
        raise UserError("generate: choose early exit or drafting, not both")
    if draft is not None and not 1 <= draft.depth < depth:
        raise UserError(f"generate: a draft for depth {depth} has depth 1 to {depth - 1}, not {draft.depth}")
    if draft is not None and draft.tokens < 1:
        raise UserError(f"generate: a draft needs at least one token, not {draft.tokens}")
    parts = uncacheable_components(model)  # type: ignore[arg-type]
    if (exit is not None or draft is not None) and (cache is None or parts):
        what = "early exit" if draft is None else "drafting"
        reason = "the cache is off" if cache is None else f"{' and '.join(parts)} cannot use one"
        raise UserError(f"generate: {what} needs a key-value cache, but {reason}; generate at full depth")
    common = (model, prompts, sample, room, depth, sampling, cache)
    if exit is not None:
        return ExitingSequences(*common, exit)
    return ActiveSequences(*common) if draft is None else SpeculativeSequences(*common, draft)
