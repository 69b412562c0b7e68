"""The regex tokenizer against the numbers of the paper's own, and its quirks behind options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.tokenizer import Lost
from loopkit.components.tokenizer.regex import PATTERN, Regex


@pytest.fixture(scope="module")
def golden(golden_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((golden_dir / "readout_blind_spot/tokenizer.json").read_text())
    return content


@pytest.fixture(scope="module")
def paper(golden: dict[str, Any]) -> Regex:
    tokenizer = Regex(max_size=golden["max_vocab_size"], min_count=golden["min_token_freq"], unmatched="drop")
    tokenizer.fit(golden["fit_texts"])
    return tokenizer


def test_pattern_and_special_tokens_match_the_paper(golden: dict[str, Any], paper: Regex) -> None:
    assert paper.pattern == golden["pattern"] == PATTERN
    assert {"pad": paper.pad, "bos": paper.bos, "eos": paper.eos, "unk": paper.unknown} == golden["special"]


def test_vocabulary_matches_the_paper(golden: dict[str, Any], paper: Regex) -> None:
    assert paper.tokens == golden["vocab"]
    small = golden["small_vocab"]
    tokenizer = Regex(max_size=small["max_vocab_size"], min_count=small["min_token_freq"], unmatched="drop")
    tokenizer.fit(golden["fit_texts"])
    assert tokenizer.tokens == small["vocab"]


def test_encodings_match_the_paper(golden: dict[str, Any], paper: Regex) -> None:
    assert len(golden["examples"]) >= 14
    for example in golden["examples"]:
        assert paper.cut(example["text"]) == example["tokens"]
        (ids,) = paper.encode([example["text"]])
        assert ids.tolist() == example["ids"]
        assert paper.decode(ids) == example["decoded"]
        assert paper.decode(ids, special=True) == example["decoded_keep_special"]


def test_joined_text_matches_the_paper(golden: dict[str, Any], paper: Regex) -> None:
    joined = golden["join_with"].join(golden["fit_texts"])
    assert joined == golden["joined_text"]
    assert paper.encode([joined])[0].tolist().count(paper.unknown) == golden["joined_ids_unk_count"]


def test_unmatched_characters_are_kept_by_default() -> None:
    text = "café 日本 x²"
    keep, drop = Regex(min_count=1), Regex(min_count=1, unmatched="drop")
    for tokenizer in (keep, drop):
        tokenizer.fit([text])
    assert keep.decode(keep.encode([text])[0]) == text
    assert keep.lost(text) == Lost(0, 0)
    assert drop.decode(drop.encode([text])[0]) == "caf  x"
    assert drop.lost(text) == Lost(0, dropped=4)


def test_unknown_characters_are_counted() -> None:
    tokenizer = Regex(min_count=2)
    tokenizer.fit(["the the game"])
    assert tokenizer.lost("the game é") == Lost(unknown=len("game") + len("é"))
    assert tokenizer.encode(["the game é"])[0].tolist().count(3) == 2


def test_special_tokens_in_text_keep_their_ids() -> None:
    tokenizer = Regex(pattern=r"\S+|\s+", min_count=1)
    tokenizer.fit(["a <unk> b <unk>"])
    assert tokenizer.tokens.count("<unk>") == 1
    assert tokenizer.encode(["<unk>"])[0].tolist() == [tokenizer.unknown]
    assert not tokenizer.separable


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "is not a regular expression"),
        ("(a)b", "captures groups"),
        ("a*", "matches the empty string"),
        (r"\b", "empty string"),
    ],
)
def test_invalid_patterns_are_errors(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"data\.tokenizer\.pattern: .*{message}"):
        Regex(pattern=pattern)


def test_large_vocabulary_needs_wider_integers() -> None:
    tokenizer = Regex(max_size=None, min_count=1)
    tokenizer.fit([" ".join(map(str, range(70_000)))])
    (ids,) = tokenizer.encode(["69999"])
    assert tokenizer.tokens[int(ids[0])] == "69999"
