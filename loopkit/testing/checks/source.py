"""Sources: the same documents each time, named by a fingerprint."""

from __future__ import annotations

from itertools import islice
from typing import Any

from loopkit.components.source import TRAIN, VALIDATION, WORDS, Document
from loopkit.testing.case import Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND, SOME = ("source",), 200


def documents(subject: ComponentUnderTest, split: str = TRAIN) -> list[Document]:
    """The first documents of a split, from a source of its own."""
    with report_as_violation(f"it has no {split} documents", "give what it needs with --loopkit-options"):
        return list(islice(subject.build().documents(split), SOME))


@rule("documents", KIND, after=("builds",))
def documents_(subject: ComponentUnderTest) -> None:
    """It yields documents with text and keys of their own, to train and to validate on."""
    for split in (TRAIN, VALIDATION):
        found = documents(subject, split)
        if not found or not any(document.text for document in found):
            raise Violation(f"its {split} split has no text")
        if odd := [item for item in found if not isinstance(item, Document)]:
            raise Violation("it yields what is no Document", type(odd[0]).__name__, "Document((Part(text),), key)")
        keys = [document.key for document in found]
        if len(set(keys)) < len(keys):
            raise Violation("two of its documents have one key", next(key for key in keys if keys.count(key) > 1))


@rule("layout", KIND, after=("documents",))
def layout(subject: ComponentUnderTest) -> None:
    """It says in its registration what becomes of its documents, and a stream has one part in each."""
    cls: Any = subject.cls
    stated = subject.traits.get("layout", cls.layout)
    if stated != cls.layout or stated not in ("stream", "examples"):
        raise Violation("its layout is not the one that it states", f"{cls.layout!r} and {stated!r}")
    if stated == "stream" and any(len(document.parts) != 1 for document in documents(subject)):
        raise Violation(
            "a document of a stream has not exactly one part", hint='layout="examples" for prompts and answers'
        )
    if stated == "stream" and any(
        part.target is not None for document in documents(subject) for part in document.parts
    ):
        raise Violation("a document of a stream has targets", hint='layout="examples" for targets in place of tokens')
    if stated == "examples" and not any(part.learn for document in documents(subject) for part in document.parts):
        raise Violation("no part of its documents is to be learned", hint="Part(text, learn=True)")
    if cls.words not in (None, *WORDS):
        raise Violation("its words are none that can be counted", repr(cls.words), f"None, {' or '.join(WORDS)}")


@rule("seed", KIND, after=("documents",))
def seed(subject: ComponentUnderTest) -> None:
    """Its documents come in the same order each time."""
    if documents(subject) != documents(subject):
        raise Violation(
            "it yields other documents, or another order, the second time", hint="sort what the system lists"
        )


@rule("fingerprint", KIND, after=("seed",))
def fingerprint(subject: ComponentUnderTest) -> None:
    """A fingerprint names each split: the same each time, another for another split."""
    with report_as_violation("it has no fingerprint"):
        first, again, other = (subject.build().fingerprint(split) for split in (TRAIN, TRAIN, VALIDATION))
    if not isinstance(first, str) or not first:
        raise Violation("its fingerprint is no text", repr(first))
    if first != again:
        raise Violation(
            "its fingerprint changes", "two sources of equal options differ", "hash content, never time or id"
        )
    if first == other:
        raise Violation("two splits have one fingerprint", hint="hash the name of the split along")


@rule("missing split", KIND, after=("documents",))
def missing_split(subject: ComponentUnderTest) -> None:
    """A split that is not there is a ValueError or OSError that says so, for documents and fingerprint."""
    source = subject.build()
    acts = {"documents": lambda: list(islice(source.documents("no_such_split"), 1))}
    acts["fingerprint"] = lambda: [source.fingerprint("no_such_split")]
    for what, act in acts.items():
        try:
            act()
        except (ValueError, OSError) as error:
            if str(error):
                continue
            raise Violation(f"{what}() of a missing split says nothing", hint="name cause and remedy") from error
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            raise Violation(f"{what}() of a missing split is no ValueError", seen, "raise ValueError(...)") from error
        if what == "documents":
            raise Violation("it yields documents of a split that is not there")
