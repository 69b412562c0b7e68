"""Text completion: encodes prompts, generates tokens, and decodes them up to a stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.inference.generate import Generated, generate
from loopkit.inference.policy import FULL
from loopkit.inference.sampling import GREEDY, Sampling
from loopkit.inference.speculation import Draft
from loopkit.inference.token_exit import ExitRule
from loopkit.loop import LoopedModelProtocol

_SLACK = 16  # tokens searched beyond the length of a stop string, because some tokens decode to nothing


@dataclass(frozen=True)
class Completed:
    """The completion of a prompt.

    Args:
        text: The generated text, without what stopped it.
        num_tokens: Number of generated tokens, including those that stopped it.
        finished: Whether a stop ended the completion, not the limit of tokens or positions.
        mean_depth: Mean number of loops of a token.
        num_drafted: Number of tokens that were drafted with fewer loops and accepted.
    """

    text: str
    num_tokens: int
    finished: bool
    mean_depth: float
    num_drafted: int = 0


class StopCriteria:
    """Ends a completion at one of the tokenizer's end-of-text tokens or at one of some strings.

    A string that is one special token ends the completion as a token, because special tokens decode to nothing; any
    other string ends it where it appears in the decoded text, even across tokens.

    Args:
        tokenizer: The model's.
        strings: Strings that end a completion.
    """

    def __init__(self, tokenizer: Tokenizer, strings: Sequence[str] = ()) -> None:
        if "" in strings:
            raise UserError("a stop string is empty, which would end every completion immediately; remove it")
        self.tokenizer = tokenizer
        tokens = {text: _special(tokenizer, text) for text in strings}
        self.eos = {token for token in (*tokenizer.ends, *tokens.values()) if token is not None}
        self.strings = [text for text, token in tokens.items() if token is None]
        self._window = max((len(text.encode()) for text in self.strings), default=0) + _SLACK

    def __call__(self, tokens: Sequence[int]) -> bool:
        """Check whether the last tokens contain a stop string."""
        if not self.strings:
            return False
        tail = self.tokenizer.decode(tokens[-self._window :])
        return any(stop in tail for stop in self.strings)

    def truncate(self, generated: Generated) -> Completed:
        """Decode tokens up to the stop."""
        tokens = generated.tokens
        text = self.tokenizer.decode(tokens[:-1] if tokens[-1] in self.eos else tokens)
        ends = [start for stop in self.strings if (start := text.find(stop)) >= 0]
        return Completed(
            text[: min(ends)] if ends else text,
            len(tokens),
            generated.finished,
            generated.mean_depth,
            generated.num_drafted,
        )


def complete(
    model: LoopedModelProtocol,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    depth: int,
    max_tokens: int | Sequence[int],
    stop: Sequence[str] = (),
    sampling: Sampling = GREEDY,
    cache: str | None = FULL,
    watch: Callable[[int, Sequence[int]], None] = lambda number, tokens: None,
    done: Callable[[int, Completed], None] = lambda number, completed: None,
    exit: ExitRule | None = None,
    draft: Draft | None = None,
) -> list[Completed]:
    """Complete every prompt, all in one batch.

    As in training, no token is added before a prompt; a template must contain its own. See ``generate`` for the
    properties of the generated tokens.

    Args:
        model: In evaluation mode.
        tokenizer: The model's.
        prompts: Prompt texts.
        depth: Loops, >= 1.
        max_tokens: Maximum number of new tokens, for all prompts or one per prompt.
        stop: Strings that end a completion, in addition to the tokenizer's end-of-text tokens.
        sampling: Rule by which tokens are chosen.
        cache: Name of the cache policy; ``None`` disables the cache.
        watch: Called after each token with the index of a prompt and its new tokens.
        done: Called with the index of a prompt and its completion, as soon as it has ended.
        exit: When to stop looping; ``None``: after ``depth`` loops.
        draft: Draft tokens with fewer loops.

    Raises:
        UserError: As ``generate``, or if a stop string is empty.
    """
    criteria = StopCriteria(tokenizer, stop)

    def should_stop(number: int, tokens: Sequence[int]) -> bool:
        watch(number, tokens)
        return criteria(tokens)

    results = generate(
        model,
        encode_prompts(tokenizer, prompts),
        depth=depth,
        max_tokens=max_tokens,
        eos=criteria.eos,
        watch=should_stop,
        done=lambda number, generated: done(number, criteria.truncate(generated)),
        sampling=sampling,
        cache=cache,
        exit=exit,
        draft=draft,
    )
    return [criteria.truncate(generated) for generated in results]


def encode_prompts(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of prompts."""
    return [[int(token) for token in ids] for ids in tokenizer.encode(prompts)] if prompts else []


def _special(tokenizer: Tokenizer, text: str) -> int | None:
    """Return the id of the special token that a text is, or ``None``."""
    ids = [int(token) for token in tokenizer.encode([text])[0]]
    if len(ids) != 1 or tokenizer.decode(ids) or tokenizer.decode(ids, special=True) != text:
        return None
    return ids[0]
