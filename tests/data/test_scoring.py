"""What an evaluation scores, with exact denominators and a sentence about it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loopkit.components.tokenizer.regex import Regex
from loopkit.data.encoding.store import TokenStore
from loopkit.data.rows import IGNORE
from loopkit.data.scoring import Scoring, score_examples, score_stream
from tests.data.toys import examples_of, store_of

TEXT = "".join(f"the {i} th line has {i} words\n" for i in range(300))


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return store_of(tmp_path, [TEXT])


def score(store: TokenStore, **options: object) -> Scoring:
    settings = {"length": 64, "stride": None, "protocol": "non_overlapping", "max_tokens": None} | options
    return score_stream(store, "validation", pad=256, words="words_and_lines", **settings)  # type: ignore[arg-type]


def labels(scoring: Scoring) -> np.ndarray:
    scored = np.concatenate([scoring.row(i).labels for i in range(len(scoring))])
    return scored[scored != IGNORE]


def test_once_scores_the_whole_text(store: TokenStore) -> None:
    scoring = score(store)
    assert scoring.tokens_scored == len(TEXT) - 1 == scoring.scored(range(len(scoring)))
    assert bytes(labels(scoring).tolist()).decode() == TEXT[1:]
    assert scoring.words == len(TEXT.split()) + TEXT.count("\n")
    assert scoring.bytes == len(TEXT)
    assert "all 8" in scoring.statement
    assert f"{scoring.words:,} words, {scoring.bytes:,} bytes" in scoring.statement


def test_context_does_not_change_what_is_scored(store: TokenStore) -> None:
    scoring = score(store, stride=16)
    assert bytes(labels(scoring).tolist()).decode() == TEXT[1:]
    assert (scoring.words, scoring.bytes) == (score(store).words, score(store).bytes)
    assert "48 tokens of context" in scoring.statement


@pytest.mark.parametrize("limit", [400, 1000, 5000])
def test_prefix_ends_at_exact_counts(store: TokenStore, limit: int) -> None:
    scoring = score(store, max_tokens=limit)
    read = TEXT[: scoring.bytes]
    assert limit - 300 < len(read) <= limit
    assert bytes(labels(scoring).tolist()).decode() == read[1:]
    assert scoring.words == len(read.split()) + read.count("\n")
    assert scoring.statement.startswith(f"validation: the first {len(read):,} of {len(TEXT):,} tokens (")


def test_prefix_may_span_documents(tmp_path: Path) -> None:
    tokenizer = Regex(min_count=1)
    lines = [f" line {i} of the text . \n" for i in range(200)]
    tokenizer.fit(["\n\n".join(lines)])
    store = store_of(tmp_path, lines, tokenizer=tokenizer, join="\n\n")
    scoring = score(store, max_tokens=900)
    scored = tokenizer.decode([int(store.read(0, 1)[0]), *labels(scoring).tolist()])
    assert "\n\n".join(lines).startswith(scored)
    assert scoring.bytes == len(scored)
    assert scoring.words == len(scored.split()) + scored.count(" \n\n\n")


def test_half_overlap_scores_overlapping_windows(store: TokenStore) -> None:
    scoring = score(store, protocol="half_overlap")
    count = (len(TEXT) - 64 - 1) // 32 + 1
    assert len(scoring) == count
    assert scoring.tokens_scored == count * 64 == len(labels(scoring))
    assert scoring.words is None
    assert scoring.bytes is None
    assert f"every 32 scored in full, {count * 64:,} scores of {(count - 1) * 32 + 64:,} tokens" in scoring.statement
    assert len(score(store, protocol="half_overlap", stride=64)) == (len(TEXT) - 64 - 1) // 64 + 1


def test_only_answers_are_scored(tmp_path: Path) -> None:
    store = examples_of(tmp_path, [f"{i}+1={i + 1}" for i in range(20)])
    scoring = score_examples(store, "test", 32, None, pad=256, words="words_and_lines")
    answers = [str(i + 1) for i in range(20)]
    assert scoring.tokens_scored == scoring.bytes == sum(map(len, answers))
    assert scoring.words == 2 * len(answers)  # a word and an end of line each
    part = score_examples(store, "test", 32, 31, pad=256, words="words_and_lines")
    assert len(part) == 6
    assert (part.tokens_scored, part.bytes) == (6, 6)
    assert "the first 30 of" in part.statement


def test_truncated_answers_have_no_word_count(tmp_path: Path) -> None:
    scoring = score_examples(examples_of(tmp_path, ["1=abcdef"]), "test", 3, None, pad=0, words="words_and_lines")
    assert (scoring.tokens_scored, scoring.words, scoring.bytes) == (3, None, None)
    assert "1 of them cut to 3" in scoring.statement
