"""The text inside Python: whole topics are held out, and nothing stands on both sides."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from loopkit.components.source.python_docs import PythonDocs, drop_repeated, read_topics
from loopkit.errors import UserError

SPLITS = ("train", "validation", "test")


def test_topics_are_split_by_their_shares() -> None:
    sizes = {split: sum(len(d.text) for d in PythonDocs().documents(split)) for split in SPLITS}
    total = sum(sizes.values())
    assert total > 200_000
    assert sizes["validation"] == pytest.approx(0.1 * total, rel=0.05)
    assert sizes["test"] == pytest.approx(0.05 * total, rel=0.05)


def test_no_topic_is_in_two_splits() -> None:
    names = [document.key.partition(":")[2] for split in SPLITS for document in PythonDocs().documents(split)]
    assert len(names) == len(set(names))
    assert set(names) == set(drop_repeated(read_topics()))


def test_train_contains_little_validation_text() -> None:
    train = {p for document in PythonDocs().documents("train") for p in document.text.split("\n\n")}
    held_out = [p for document in PythonDocs().documents("validation") for p in document.text.split("\n\n")]
    assert sum(len(p) for p in held_out if p in train) < 0.02 * sum(map(len, held_out))


def test_topic_inside_another_is_dropped() -> None:
    long, short = "one one\n\ntwo two\n\nthree", "two two\n\nnew"
    assert drop_repeated({"a": long, "b": short, "c": "other"}) == {"a": long, "c": "other"}


def test_documents_and_fingerprints_are_deterministic() -> None:
    assert list(PythonDocs().documents("train")) == list(PythonDocs().documents("train"))
    assert PythonDocs().fingerprint("valid") == PythonDocs(join=" ").fingerprint("validation")
    assert PythonDocs().fingerprint("train") != PythonDocs(validation=0.2).fingerprint("train")


def test_unknown_and_empty_splits_are_errors() -> None:
    with pytest.raises(ValueError, match="unknown split 'hard'; choose one of train, validation, test"):
        list(PythonDocs().documents("hard"))
    with pytest.raises(ValueError, match=r"raise data\.source\.test"):
        list(PythonDocs(test=0.0).documents("test"))


def test_missing_topics_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def import_without_topics(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pydoc_data"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_without_topics)
    with pytest.raises(UserError, match="install its full standard library"):
        read_topics()
