"""A smoothed bigram model: what a language model of the same tokens has to beat.

Interpolated absolute discounting over a unigram that mixes continuation counts (in how many contexts a token was seen,
as Kneser and Ney have it), plain counts and the uniform distribution. Its two settings are tuned on the end of the
training tokens, then it is fitted on all of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

DISCOUNTS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
CONTINUATIONS = (0.0, 0.5, 0.9)
UNIFORM = 0.01
HELD_OUT = 0.1


@dataclass(frozen=True)
class Bigram:
    """Probabilities of a token after another.

    Args:
        train: Token numbers to count, int64 ``[N]``.
        vocabulary: Number of tokens.
        discount: Taken from every count above zero, in (0, 1).
        continuation: Share of continuation counts in the unigram, in [0, 1).
    """

    train: np.ndarray
    vocabulary: int
    discount: float
    continuation: float

    def losses(self, tokens: np.ndarray) -> np.ndarray:
        """Minus the log probability of every token but the first, in nats."""
        before, after = self.train[:-1], self.train[1:]
        pairs, counts = np.unique(before * self.vocabulary + after, return_counts=True)
        context = np.bincount(before, minlength=self.vocabulary)
        kinds = np.bincount(pairs // self.vocabulary, minlength=self.vocabulary)  # followers of each context
        seen_after = np.bincount(pairs % self.vocabulary, minlength=self.vocabulary) / len(pairs)
        plain = np.bincount(self.train, minlength=self.vocabulary) / len(self.train)
        unigram = self.continuation * seen_after + (1 - self.continuation - UNIFORM) * plain + UNIFORM / self.vocabulary
        queries = tokens[:-1] * self.vocabulary + tokens[1:]
        position = np.minimum(np.searchsorted(pairs, queries), len(pairs) - 1)
        count = np.where(pairs[position] == queries, counts[position], 0)
        total = context[tokens[:-1]]
        left = np.where(total > 0, self.discount * kinds[tokens[:-1]] / np.maximum(total, 1), 1.0)
        discounted = np.where(total > 0, np.maximum(count - self.discount, 0) / np.maximum(total, 1), 0.0)
        return -np.log(discounted + left * unigram[tokens[1:]])


def fit_bigram(train: np.ndarray, vocabulary: int) -> Bigram:
    """The bigram model of these tokens, its settings tuned on their end."""
    cut = int(len(train) * (1 - HELD_OUT))
    settings = itertools.product(DISCOUNTS, CONTINUATIONS)
    best = min(settings, key=lambda each: Bigram(train[:cut], vocabulary, *each).losses(train[cut:]).mean())
    return Bigram(train, vocabulary, *best)


def bigram_perplexity(train: np.ndarray, scored: np.ndarray, vocabulary: int) -> float:
    """Perplexity per token over every token of ``scored`` but the first."""
    return math.exp(fit_bigram(train, vocabulary).losses(scored).mean())
