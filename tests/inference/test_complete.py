"""Where texts stop, and what is left of them."""

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
    """One token per word, two special ones that spell nothing, and ends of line in pieces."""

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


def says(text: str, tokenizer: Tokenizer) -> LoopedModel:
    """A model that says one text after any one-token prompt, over and over."""
    ids = [int(i) for i in tokenizer.encode([text])[0]]
    model = build_model(section(), vocabulary=tokenizer.size, max_length=64, max_loops=2, seed=0).eval()
    spoken = iter(ids * 50)

    def answer(z: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.tensor([next(spoken)] * len(z)), tokenizer.size).float()

    model.head.forward = answer  # type: ignore[method-assign,assignment]
    return model


def said(text: str, stop: Sequence[str] = (), *, max_tokens: int = 20, tokenizer: Tokenizer | None = None) -> Any:
    tokenizer = tokenizer or Words()
    return complete(says(text, tokenizer), tokenizer, ["a "], depth=1, max_tokens=max_tokens, stop=stop)[0]


def test_the_end_of_text_ends_a_text_and_is_no_part_of_it() -> None:
    found = said("a b <end>a ")
    assert (found.text, found.num_tokens, found.finished) == ("a b ", 3, True)


def test_a_special_token_stops_although_it_spells_nothing() -> None:
    found = said("a b <turn>a ", ["<turn>"])
    assert (found.text, found.num_tokens, found.finished) == ("a b ", 3, True)
    assert said("a b <turn>a ", max_tokens=4).text == "a b a ", "without being asked to, it does not"


def test_a_string_stops_across_tokens_and_takes_what_follows_it_away() -> None:
    found = said("a St<turn>op! b ", ["Stop"])
    assert (found.text, found.num_tokens, found.finished) == ("a ", 4, True)
    found = said("a Stop! b ", ["top!"])
    assert (found.text, found.num_tokens) == ("a S", 4)
    assert said("a Stop! b ", ["b ", "op", "Stop"]).text == "a ", "the first of several"


def test_the_limit_leaves_a_text_unfinished() -> None:
    found = said("a b ", max_tokens=3)
    assert (found.text, found.num_tokens, found.finished) == ("a b a ", 3, False)


def test_bytes_stop_at_a_string_that_is_cut_through_their_middle() -> None:
    found = said("naïve €uro", ["€"], tokenizer=Bytes())
    assert (found.text, found.finished) == ("naïve ", True)
    assert found.num_tokens == len("naïve €".encode())


def test_stop_string_is_searched_in_the_tail() -> None:
    stops = StopCriteria(Words(), ["Stop"])
    assert stops([2] * 100 + [4, 5])
    assert not stops([4, 5] + [2] * 100)
    assert stops.truncate(Generated((2, 4, 5), True)).text == "a "


def test_empty_stop_string_is_rejected() -> None:
    with pytest.raises(ValueError, match="a stop string is empty"):
        said("a ", ["b", ""])
