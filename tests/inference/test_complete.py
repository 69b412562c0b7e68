"""Stop criteria of completions, and the text that remains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from loopkit.components.tokenizer import Tokenizer
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.inference import Generated, complete
from loopkit.inference.complete import StopCriteria
from loopkit.model import LoopedModel, build_model
from tests.model.tiny import section


class Words(Tokenizer):
    """One token per word, two special tokens that decode to nothing, and a stop word in two pieces."""

    words = ("<end>", "<turn>", "a ", "b ", "St", "op", "! ", "é")
    size, eos = len(words), 0

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(list(self._split(text)), dtype=np.int64) for text in texts]

    def _split(self, text: str) -> Iterator[int]:
        while text:
            number = next((i for i, word in enumerate(self.words) if text.startswith(word)), None)
            if number is not None:
                yield number
            text = text[1 if number is None else len(self.words[number]) :]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return "".join(self.words[i] for i in ids if special or i > 1)

    def state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Words:
        return cls()


def build_speaker(text: str, tokenizer: Tokenizer) -> LoopedModel:
    """Build a model that repeats one text after any one-token prompt."""
    ids = [int(i) for i in tokenizer.encode([text])[0]]
    model = build_model(section(), vocabulary=tokenizer.size, max_length=64, max_loops=2, seed=0).eval()
    tokens = iter(ids * 50)

    def answer(z: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.tensor([next(tokens)] * len(z)), tokenizer.size).float()

    model.head.forward = answer  # type: ignore[method-assign,assignment]
    return model


def complete_text(
    text: str, stop: Sequence[str] = (), *, max_tokens: int = 20, tokenizer: Tokenizer | None = None
) -> Any:
    tokenizer = tokenizer or Words()
    return complete(build_speaker(text, tokenizer), tokenizer, ["a "], depth=1, max_tokens=max_tokens, stop=stop)[0]


def test_end_of_text_token_is_excluded() -> None:
    result = complete_text("a b <end>a ")
    assert (result.text, result.num_tokens, result.finished) == ("a b ", 3, True)


def test_special_token_stops() -> None:
    result = complete_text("a b <turn>a ", ["<turn>"])
    assert (result.text, result.num_tokens, result.finished) == ("a b ", 3, True)
    assert complete_text("a b <turn>a ", max_tokens=4).text == "a b a ", "it stops only if requested"


def test_stop_string_is_matched_across_tokens() -> None:
    result = complete_text("a St<turn>op! b ", ["Stop"])
    assert (result.text, result.num_tokens, result.finished) == ("a ", 4, True)
    result = complete_text("a Stop! b ", ["top!"])
    assert (result.text, result.num_tokens) == ("a S", 4)
    assert complete_text("a Stop! b ", ["b ", "op", "Stop"]).text == "a ", "the first of several"


def test_token_limit_leaves_completion_unfinished() -> None:
    result = complete_text("a b ", max_tokens=3)
    assert (result.text, result.num_tokens, result.finished) == ("a b a ", 3, False)


def test_bytes_stop_at_a_multibyte_string() -> None:
    result = complete_text("naïve €uro", ["€"], tokenizer=Bytes())
    assert (result.text, result.finished) == ("naïve ", True)
    assert result.num_tokens == len("naïve €".encode())


def test_stop_string_is_searched_in_the_tail() -> None:
    stops = StopCriteria(Words(), ["Stop"])
    assert stops([2] * 100 + [4, 5])
    assert not stops([4, 5] + [2] * 100)
    assert stops.truncate(Generated((2, 4, 5), True, (1, 1, 1))).text == "a "


def test_empty_stop_string_is_rejected() -> None:
    with pytest.raises(ValueError, match="a stop string is empty"):
        complete_text("a ", ["b", ""])
