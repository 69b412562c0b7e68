"""Sums: their form, their splits, and the published examples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopkit.components.source.addition import AdditionSource
from loopkit.components.tokenizer.characters import Characters
from loopkit.data import prepare
from loopkit.recipe import component
from loopkit.recipe.format import DataConfig

SMALL = {"digits": 2, "train": 500, "validation": 40, "test": 60}


def problems(source: AdditionSource, split: str) -> list[str]:
    return [document.text for document in source.documents(split)]


def operands(text: str) -> tuple[int, int]:
    a, b = text.split("=")[0].split("+")
    return int(a), int(b)


def test_answer_digits_are_reversed() -> None:
    (document,) = AdditionSource(low=1750, high=1750, train=1, validation=0, test=0).documents("train")
    assert [(part.text, part.learn) for part in document.parts] == [("1750+1750=", False), (" 0053§", True)]
    (forward,) = AdditionSource(low=1750, high=1750, train=1, validation=0, test=0, reverse=False).documents("train")
    assert forward.text == "1750+1750= 3500§"


def test_problems_are_correct_distinct_and_in_one_split() -> None:
    source = AdditionSource(**SMALL)
    texts_by_split = {split: problems(source, split) for split in ("train", "valid", "test")}
    assert [len(texts) for texts in texts_by_split.values()] == [500, 40, 60]
    pairs = {split: [operands(text) for text in texts] for split, texts in texts_by_split.items()}
    for split, texts in texts_by_split.items():
        for text, (a, b) in zip(texts, pairs[split], strict=True):
            assert 10 <= min(a, b) <= max(a, b) <= 99
            assert int(text.split("= ")[1].rstrip("§")[::-1]) == a + b
        assert len(set(pairs[split])) == len(texts)
    held_out = {frozenset(pair) for split in ("valid", "test") for pair in pairs[split]}
    assert not held_out & {frozenset(pair) for pair in pairs["train"]}
    assert not set(pairs["valid"]) & set(pairs["test"])


def test_operands_are_uniform() -> None:
    pairs = np.array([operands(text) for text in problems(AdditionSource(train=20_000), "train")])
    assert pairs.min() >= 1000
    assert pairs.max() <= 9999
    shares = np.histogram(pairs, bins=9, range=(1000, 10_000))[0] / pairs.size
    assert abs(shares - 1 / 9).max() < 5 * np.sqrt(1 / 9 * 8 / 9 / pairs.size)


def test_problems_depend_only_on_the_seed() -> None:
    assert problems(AdditionSource(**SMALL), "train") == problems(AdditionSource(**SMALL), "train")
    assert problems(AdditionSource(**SMALL), "train") != problems(AdditionSource(**SMALL, seed=1), "train")
    prints = [AdditionSource(**SMALL, seed=seed).fingerprint(split) for seed in (0, 1) for split in ("train", "test")]
    assert len(set(prints)) == 4
    # the number of training problems does not change the held-out ones
    assert problems(AdditionSource(**SMALL), "test") == problems(AdditionSource(**SMALL | {"train": 600}), "test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 5, "high": 4}, r"low \(5\) is greater than high \(4\)"),
        ({"digits": 1, "train": 90, "validation": 10, "test": 10}, "make 100 problems, fewer than 90"),
    ],
)
def test_impossible_ranges_are_errors(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdditionSource(**options)


def test_operands_may_exceed_machine_words() -> None:
    pairs = [operands(text) for text in problems(AdditionSource(digits=40, train=50, validation=5, test=5), "train")]
    assert len(set(pairs)) == 50
    assert all(len(str(number)) == 40 for pair in pairs for number in pair)


def test_empty_split_is_an_error() -> None:
    for split in ("validation", "elsewhere"):
        with pytest.raises(ValueError, match=f"the {split} split is empty"):
            list(AdditionSource(**SMALL | {"validation": 0}).documents(split))


class FixedProblems(AdditionSource):
    """The problems of one published example, and a text to train on that has every digit."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(low=0, high=10**8, train=2, validation=0, test=1)
        self.problems = {"test": [(a, b)], "train": [(0, 12345), (6789, 0)]}

    def _pairs(self, split: str) -> list[tuple[int, int]]:
        return self.problems[split]

    def fingerprint(self, split: str) -> str:
        return f"{split} {self.problems}"


def test_published_examples_match(golden_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = json.loads((golden_dir / "stars_addition" / "addition.json").read_text())
    reference_ids = {text: i for i, text in enumerate(golden["vocab"])}
    data = DataConfig(source=component("source", "addition"), tokenizer=component("tokenizer", "characters"), length=32)
    for example in golden["examples"]:
        source = FixedProblems(example["json_line"]["num1"], example["json_line"]["num2"])
        monkeypatch.setattr(type(data.source), "build", lambda spec, source=source: source)
        tokenizer = Characters()
        tokenizer.fit(document.text for document in source.documents("train"))
        row = prepare(data, cache=tmp_path, splits=["test"], tokenizer=tokenizer).splits["test"].examples(32).row(0)
        tokens = [reference_ids[tokenizer.tokens[i]] for i in row.tokens]
        labels = [golden["ignore_label"] if i < 0 else reference_ids[tokenizer.tokens[i]] for i in row.labels]
        # the reference keeps the end, after which nothing is predicted
        assert tokens == example["input_ids"][:-1]
        assert [*labels, golden["ignore_label"]] == example["labels"]
