from __future__ import annotations

from loopkit.components.task import Corpus, Likelihood
from loopkit.components.task.exact_match import ExactMatch


def test_shares_of_answers_and_tokens() -> None:
    task = ExactMatch()
    assert list(task.requests()) == [Corpus(greedy=True, by_example=True)]
    answers = [Likelihood(1.0, 10, sequences=4, right=9, exact=3), Likelihood(1.0, 10, sequences=1, right=0, exact=0)]
    assert task.total([task.mark(Corpus(greedy=True), answer) for answer in answers]) == {
        "exact_match": 0.6,
        "token_accuracy": 0.45,
    }


def test_no_sequences_give_no_figures() -> None:
    task = ExactMatch()
    assert task.total([task.mark(Corpus(), Likelihood(0.0, 0, sequences=0, right=0, exact=0))]) == {}
