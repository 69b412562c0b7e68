"""Tokenizers: what is not lost comes back, also from a folder."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from loopkit.components.tokenizer import altered
from loopkit.testing.case import NotChecked, Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND = ("tokenizer",)
FITTED = ["the cat sat on the mat, the cat sat.\n", "and 12 dogs (sat) on 12 mats\nthe end .\n"] * 3
TEXTS = [*FITTED[:2], "", "the mat sat on the cat", "a Café ☕ naïve\t\u200b zebra_9 — x", "  two  spaces \n\n"]


def fitted(subject: ComponentUnderTest) -> Any:
    """The tokenizer, with a vocabulary where it learns one."""
    tokenizer = subject.build()
    with report_as_violation("it cannot learn from texts"):
        tokenizer.fit(iter(FITTED))
    return tokenizer


def texts(subject: ComponentUnderTest) -> list[str]:
    """What it is asked to encode; a tokenizer of some texts alone gives examples in its class."""
    return list(subject.marked.get("texts", TEXTS))


def encoded(subject: ComponentUnderTest, tokenizer: Any) -> list[list[int]]:
    return [ids.tolist() for ids in tokenizer.encode(texts(subject))]


@rule("encodes", KIND, after=("builds",))
def encodes(subject: ComponentUnderTest) -> None:
    """It gives one integer array per text, of numbers below its size, whatever else is in the list."""
    tokenizer = fitted(subject)
    with report_as_violation("it cannot encode"):
        found = tokenizer.encode(texts(subject))
    if len(found) != len(texts(subject)):
        raise Violation("it does not give one array per text", f"{len(found)} for {len(texts(subject))}")
    for text, ids in zip(texts(subject), found, strict=True):
        if not isinstance(ids, np.ndarray) or ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise Violation(
                "it gives no integer array", f"{type(ids).__name__} for {text!r}", "np.array(ids, dtype=np.uint16)"
            )
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < tokenizer.size:
            raise Violation(f"it gives numbers outside of 0 to {tokenizer.size - 1}", f"for {text!r}")
        if tokenizer.encode([text])[0].tolist() != ids.tolist():
            raise Violation("a text's numbers depend on the other texts", repr(text))
    special = [number for name in ("pad", "bos", "eos", "unknown") if (number := getattr(tokenizer, name)) is not None]
    if any(not 0 <= number < tokenizer.size for number in special):
        raise Violation("a special token lies outside of its vocabulary", f"{special}, size {tokenizer.size}")


@rule("round trip", KIND, after=("encodes",))
def round_trip(subject: ComponentUnderTest) -> None:
    """Decoding gives the text back, less the characters that lost() counts."""
    tokenizer = fitted(subject)
    for text in texts(subject):
        ids = tokenizer.encode([text])[0].tolist()
        back, lost = tokenizer.decode(ids), tokenizer.lost(text)
        missing = lost.unknown + lost.dropped
        if missing == 0 and back != text:
            raise Violation("it says that nothing is lost, and decoding gives another text", f"{back!r} for {text!r}")
        if missing < (least := altered(text, back)) or (missing and not least):
            seen = f"{text!r} loses {least} characters, lost() says {missing}"
            raise Violation("lost() does not count what decoding leaves out", seen)


@rule("separable", KIND, after=("encodes",))
def separable(subject: ComponentUnderTest) -> None:
    """Where it says separable, cutting a text before a blank changes no number."""
    tokenizer = fitted(subject)
    if not tokenizer.separable:
        raise NotChecked("it does not say that it is separable")
    for text in texts(subject):
        for place in range(1, len(text)):
            if text[place - 1].isalnum() and text[place - 1].isascii() and text[place] in " \n":
                parts = [i for ids in tokenizer.encode([text[:place], text[place:]]) for i in ids.tolist()]
                if parts != tokenizer.encode([text])[0].tolist():
                    raise Violation("it says separable, and a cut before a blank changes its numbers", repr(text))


@rule("save and load", KIND, after=("encodes",))
def save_and_load(subject: ComponentUnderTest) -> None:
    """From a folder it comes back as it was."""
    tokenizer = fitted(subject)
    with report_as_violation("its state is not plain JSON", "state() gives lists, maps, texts and numbers"):
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
        raise Violation(f"from a folder it comes back with another {differ[0]}", hint="state() and restore()")


@rule("seed", KIND, after=("encodes",))
def seed(subject: ComponentUnderTest) -> None:
    """Fitted twice on the same texts, it gives the same numbers."""
    first, again = fitted(subject), fitted(subject)
    if encoded(subject, first) != encoded(subject, again) or first.fingerprint() != again.fingerprint():
        raise Violation("fitted twice on the same texts it differs", hint="break ties by the token, not by chance")
