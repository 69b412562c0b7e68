"""Text from text: prompts encoded, gone on from, cut where they stop, and decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.inference.generate import Generated, generate
from loopkit.inference.policy import FULL
from loopkit.inference.sampling import GREEDY, Sampling
from loopkit.loop import LoopedModelProtocol

_SLACK = 16  # tokens looked at beyond the length of a stop string, for those that spell nothing


@dataclass(frozen=True)
class Completed:
    """What a model added to a prompt.

    Args:
        text: The text, up to where it stopped and without what stopped it.
        num_tokens: Tokens that the model made, those that stopped it included.
        finished: Whether the model came to an end by itself.
    """

    text: str
    num_tokens: int
    finished: bool


class Stops:
    """Where a text ends: at any of the tokenizer's ends of text, or at any of some strings.

    A string that is one special token of the vocabulary ends the text as a token, because special tokens spell
    nothing; any other ends it where it is spelt, also across tokens.

    Args:
        tokenizer: The model's.
        strings: What ends a text.
    """

    def __init__(self, tokenizer: Tokenizer, strings: Sequence[str] = ()) -> None:
        if "" in strings:
            raise UserError("a stop string cannot be empty: every text would stop at once")
        self.tokenizer = tokenizer
        tokens = {text: _special(tokenizer, text) for text in strings}
        self.eos = {token for token in (*tokenizer.ends, *tokens.values()) if token is not None}
        self.strings = [text for text, token in tokens.items() if token is None]
        self._window = max((len(text.encode()) for text in self.strings), default=0) + _SLACK

    def __call__(self, tokens: Sequence[int]) -> bool:
        """Whether a stop string has just been spelt."""
        if not self.strings:
            return False
        tail = self.tokenizer.decode(tokens[-self._window :])
        return any(text in tail for text in self.strings)

    def cut(self, generated: Generated) -> Completed:
        """The text of tokens, up to where it stopped."""
        tokens = generated.tokens
        whole = self.tokenizer.decode(tokens[:-1] if tokens[-1] in self.eos else tokens)
        ends = [place for text in self.strings if (place := whole.find(text)) >= 0]
        return Completed(whole[: min(ends)] if ends else whole, len(tokens), generated.finished)


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
) -> list[Completed]:
    """Go on from every prompt, all in one batch.

    As in training, nothing is put before a prompt: what a template wants there is part of its text. ``generate`` says
    what else holds.

    Args:
        model: In evaluation mode.
        tokenizer: The model's.
        prompts: Texts.
        depth: Loops, >= 1.
        max_tokens: Most new tokens, for all or one for each.
        stop: Strings that end a text, beside the tokenizer's ends of text.
        sampling: How tokens are chosen.
        cache: Policy by which keys and values are kept; ``None``: none are.
        watch: Told the number of a prompt and its new tokens after each one.
        done: Told the number of a prompt and what it gave, as soon as it has ended.

    Raises:
        ValueError: As ``generate``, or if a stop string is empty.
    """
    stops = Stops(tokenizer, stop)

    def seen(number: int, tokens: Sequence[int]) -> bool:
        watch(number, tokens)
        return stops(tokens)

    found = generate(
        model,
        encode_prompts(tokenizer, prompts),
        depth=depth,
        max_tokens=max_tokens,
        eos=stops.eos,
        watch=seen,
        done=lambda number, generated: done(number, stops.cut(generated)),
        sampling=sampling,
        cache=cache,
    )
    return [stops.cut(generated) for generated in found]


def encode_prompts(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """Token numbers of prompts."""
    return [[int(token) for token in ids] for ids in tokenizer.encode(prompts)] if prompts else []


def _special(tokenizer: Tokenizer, text: str) -> int | None:
    """The special token that a text is, or ``None``."""
    ids = [int(token) for token in tokenizer.encode([text])[0]]
    if len(ids) != 1 or tokenizer.decode(ids) or tokenizer.decode(ids, special=True) != text:
        return None
    return ids[0]
