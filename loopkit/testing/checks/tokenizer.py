"""Tokenizers: exact round trips, except for the characters that lost() counts, also after saving and loading."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from loopkit.components.tokenizer import altered
from loopkit.plural import plural
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import NotChecked, Violation, report_as_violation, rule

KIND = ("tokenizer",)
TRAINING_TEXTS = ["the cat sat on the mat, the cat sat.\n", "and 12 dogs (sat) on 12 mats\nthe end .\n"] * 3
TEXTS = [*TRAINING_TEXTS[:2], "", "the mat sat on the cat", "a Café ☕ naïve\t\u200b zebra_9 — x", "  two  spaces \n\n"]


def fitted(subject: ComponentUnderTest) -> Any:
    """The tokenizer, with its vocabulary if it learns one."""
    tokenizer = subject.build()
    with report_as_violation("fit() fails"):
        tokenizer.fit(iter(TRAINING_TEXTS))
    return tokenizer


def texts(subject: ComponentUnderTest) -> list[str]:
    """Texts to encode; a tokenizer that accepts only certain texts lists examples in its class."""
    return list(subject.settings.get("texts", TEXTS))


def encoded(subject: ComponentUnderTest, tokenizer: Any) -> list[list[int]]:
    return [ids.tolist() for ids in tokenizer.encode(texts(subject))]


@rule("encodes", KIND, after=("builds",))
def encodes(subject: ComponentUnderTest) -> None:
    """It returns one integer array per text, with ids below its size, independent of the other texts."""
    tokenizer = fitted(subject)
    with report_as_violation("encode() fails"):
        encodings = tokenizer.encode(texts(subject))
    if len(encodings) != len(texts(subject)):
        raise Violation("it does not return one array per text", f"{len(encodings)} for {len(texts(subject))}")
    for text, ids in zip(texts(subject), encodings, strict=True):
        if not isinstance(ids, np.ndarray) or ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise Violation(
                "it does not return an integer array",
                f"{type(ids).__name__} for {text!r}",
                "np.array(ids, dtype=np.uint16)",
            )
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < tokenizer.size:
            raise Violation(f"it returns ids outside 0 to {tokenizer.size - 1}", f"for {text!r}")
        if tokenizer.encode([text])[0].tolist() != ids.tolist():
            raise Violation("the ids of a text depend on the other texts", repr(text))
    special = [number for name in ("pad", "bos", "eos", "unknown") if (number := getattr(tokenizer, name)) is not None]
    if any(not 0 <= number < tokenizer.size for number in special):
        raise Violation("a special token is outside its vocabulary", f"{special}, size {tokenizer.size}")


@rule("round trip", KIND, after=("encodes",))
def round_trip(subject: ComponentUnderTest) -> None:
    """Decoding restores the text, except for the characters that lost() counts."""
    tokenizer = fitted(subject)
    for text in texts(subject):
        ids = tokenizer.encode([text])[0].tolist()
        decoded, lost = tokenizer.decode(ids), tokenizer.lost(text)
        missing = lost.unknown + lost.dropped
        if missing == 0 and decoded != text:
            raise Violation("lost() is 0, but decoding returns another text", f"{decoded!r} for {text!r}")
        if missing < (minimum := altered(text, decoded)) or (missing and not minimum):
            seen = f"{text!r} loses {plural(minimum, 'character')}, lost() counts {missing}"
            raise Violation("lost() does not count the characters that decoding omits", seen)


@rule("separable", KIND, after=("encodes",))
def separable(subject: ComponentUnderTest) -> None:
    """If it states separable, cutting a text before a space changes no ids."""
    tokenizer = fitted(subject)
    if not tokenizer.separable:
        raise NotChecked("it does not state separable")
    for text in texts(subject):
        for index in range(1, len(text)):
            if text[index - 1].isalnum() and text[index - 1].isascii() and text[index] in " \n":
                parts = [i for ids in tokenizer.encode([text[:index], text[index:]]) for i in ids.tolist()]
                if parts != tokenizer.encode([text])[0].tolist():
                    raise Violation("it states separable, but a cut before a space changes its ids", repr(text))


@rule("save and load", KIND, after=("encodes",))
def save_and_load(subject: ComponentUnderTest) -> None:
    """Saving and loading do not change it."""
    tokenizer = fitted(subject)
    with report_as_violation("its state is not plain JSON", "state() returns lists, dictionaries, strings and numbers"):
        json.dumps(tokenizer.state(), allow_nan=False)
    with TemporaryDirectory() as folder, report_as_violation("it cannot be saved and loaded"):
        tokenizer.save(Path(folder))
        loaded = subject.cls.load(Path(folder))  # type: ignore[attr-defined]
    facts = [
        (
            t.size,
            t.pad,
            t.bos,
            t.eos,
            t.unknown,
            encoded(subject, t),
            t.fingerprint(),
            t.decode(range(t.size), special=True),
        )
        for t in (tokenizer, loaded)
    ]
    if facts[0] != facts[1]:
        names = ("size", "pad", "bos", "eos", "unknown", "encoding", "fingerprint", "decoding")
        differ = [name for name, old, new in zip(names, *facts, strict=True) if old != new]
        raise Violation(f"loading changes its {differ[0]}", hint="state() and restore()")


@rule("seed", KIND, after=("encodes",))
def seed(subject: ComponentUnderTest) -> None:
    """Fitting twice on the same texts gives the same ids."""
    first, repeated = fitted(subject), fitted(subject)
    if encoded(subject, first) != encoded(subject, repeated) or first.fingerprint() != repeated.fingerprint():
        raise Violation("fitting twice on the same texts gives different ids", hint="break ties by the token")
