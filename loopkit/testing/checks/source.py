"""Sources: the same documents each time, identified by a fingerprint."""

from __future__ import annotations

from itertools import islice
from typing import Any

from loopkit.components.source import TRAIN, VALIDATION, WORDS, Document
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND, NUM_DOCUMENTS = ("source",), 200


def documents(subject: ComponentUnderTest, split: str = TRAIN) -> list[Document]:
    """The first documents of a split, from a new source."""
    with report_as_violation(f"it yields no {split} documents", "set what it needs with --loopkit-options"):
        return list(islice(subject.build().documents(split), NUM_DOCUMENTS))


@rule("documents", KIND, after=("builds",))
def documents_(subject: ComponentUnderTest) -> None:
    """It yields documents with text and unique keys, for training and validation."""
    for split in (TRAIN, VALIDATION):
        yielded = documents(subject, split)
        if not yielded or not any(document.text for document in yielded):
            raise Violation(f"its {split} split has no text")
        if invalid := [item for item in yielded if not isinstance(item, Document)]:
            raise Violation(
                "it yields an object that is not a Document", type(invalid[0]).__name__, "Document((Span(text),), key)"
            )
        keys = [document.key for document in yielded]
        if len(set(keys)) < len(keys):
            raise Violation("two of its documents have the same key", next(key for key in keys if keys.count(key) > 1))


@rule("layout", KIND, after=("documents",))
def layout(subject: ComponentUnderTest) -> None:
    """Its registration states its layout, and documents of a stream have one part."""
    cls: Any = subject.cls
    stated = subject.traits.get("layout", cls.layout)
    if stated != cls.layout or stated not in ("stream", "examples"):
        raise Violation("its layout differs from its registration", f"{cls.layout!r} and {stated!r}")
    if stated == "stream" and any(len(document.parts) != 1 for document in documents(subject)):
        raise Violation(
            "a document of a stream does not have exactly one part", hint='layout="examples" for prompts and answers'
        )
    if stated == "stream" and any(
        part.target is not None for document in documents(subject) for part in document.parts
    ):
        raise Violation(
            "a document of a stream has targets", hint='layout="examples" for targets other than the next token'
        )
    if stated == "examples" and not any(part.learn for document in documents(subject) for part in document.parts):
        raise Violation("no part of its documents is learned", hint="Span(text, learn=True)")
    if cls.words not in (None, *WORDS):
        raise Violation("its words cannot be counted", repr(cls.words), f"None, {' or '.join(WORDS)}")


@rule("seed", KIND, after=("documents",))
def seed(subject: ComponentUnderTest) -> None:
    """Its documents have the same order each time."""
    if documents(subject) != documents(subject):
        raise Violation("it yields other documents, or another order, the second time", hint="sort directory listings")


@rule("fingerprint", KIND, after=("seed",))
def fingerprint(subject: ComponentUnderTest) -> None:
    """Each split has a fingerprint, which is the same each time and differs between splits."""
    with report_as_violation("it has no fingerprint"):
        first, repeated, other = (subject.build().fingerprint(split) for split in (TRAIN, TRAIN, VALIDATION))
    if not isinstance(first, str) or not first:
        raise Violation("its fingerprint is not a string", repr(first))
    if first != repeated:
        raise Violation(
            "its fingerprint changes", "two sources of equal options differ", "hash the content, not the time or id()"
        )
    if first == other:
        raise Violation("two splits have the same fingerprint", hint="include the name of the split in the hash")


@rule("missing split", KIND, after=("documents",))
def missing_split(subject: ComponentUnderTest) -> None:
    """A missing split raises a ValueError, UserError or OSError with a message, in documents() and fingerprint()."""
    source = subject.build()
    calls = {"documents": lambda: list(islice(source.documents("no_such_split"), 1))}
    calls["fingerprint"] = lambda: [source.fingerprint("no_such_split")]
    for method, call in calls.items():
        try:
            call()
        except (ValueError, OSError) as error:
            if str(error):
                continue
            raise Violation(
                f"{method}() of a missing split has no message", hint="state the cause and the fix"
            ) from error
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            raise Violation(
                f"{method}() of a missing split raises no UserError", seen, "raise loopkit.errors.UserError(...)"
            ) from error
        if method == "documents":
            raise Violation("it yields documents of a missing split")
