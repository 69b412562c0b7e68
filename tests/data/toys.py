"""Small sources, and stores filled from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from loopkit.components.source import Document, Source, Span
from loopkit.components.tokenizer import Tokenizer
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.data.encoding.cache import entry
from loopkit.data.encoding.pieces import example_pieces, stream_pieces
from loopkit.data.encoding.store import TokenStore, write_store


class Lines(Source):
    """Documents by split; counts how often they are read."""

    def __init__(self, texts: dict[str, list[str]], join: str | None = None) -> None:
        self.texts, self.join, self.reads = texts, join, 0

    def fingerprint(self, split: str) -> str:
        if split not in self.texts:
            raise ValueError(f"no split {split!r}")
        return repr(self.texts[split])

    def documents(self, split: str) -> Iterator[Document]:
        self.reads += 1
        for number, text in enumerate(self.texts[split]):
            yield Document((Span(text),), f"{split}:{number}")


class Sums(Lines):
    """``a+b=`` is the prompt; the text after it is learned."""

    layout: ClassVar[Literal["stream", "examples"]] = "examples"

    def documents(self, split: str) -> Iterator[Document]:
        self.reads += 1
        for number, text in enumerate(self.texts[split]):
            prompt, equals, answer = text.partition("=")
            yield Document((Span(prompt + equals, learn=False), Span(answer)), f"{split}:{number}")


PUZZLES = {"train": ["1.|.2", "..|21"], "validation": ["2.|1."]}
"""Two by two squares; a dot marks an empty cell."""


class Squares(Source):
    """Each cell is a part; an empty cell has a target."""

    layout: ClassVar[Literal["stream", "examples"]] = "examples"

    def __init__(self, target: str = "3") -> None:
        self.target = target

    def fingerprint(self, split: str) -> str:
        return f"{split} {self.target}"

    def documents(self, split: str) -> Iterator[Document]:
        for number, text in enumerate(PUZZLES[split]):
            parts = (Span(cell, target=self.target) if cell == "." else Span(cell) for cell in text)
            yield Document(tuple(parts), f"{split}:{number}", group=f"{text.count('.')} empty")


@dataclass(frozen=True)
class ToySpec:
    """A stand-in for the spec of a component."""

    built: Any
    name: str = "toy"

    def build(self) -> Any:
        return self.built

    @property
    def options(self) -> dict[str, Any]:
        return {"class": type(self.built).__name__, "fit_on": list(getattr(self.built, "fit_on", ()))}


@dataclass(frozen=True)
class ToyData:
    """A stand-in for the data section of a recipe."""

    source: Any
    tokenizer: Any


def store_of(
    folder: Path, texts: Sequence[str], *, tokenizer: Tokenizer | None = None, join: str | None = None
) -> TokenStore:
    """Encode documents as a stream, by default as bytes."""
    documents = Lines({"train": list(texts)}).documents("train")
    tokenizer = Bytes() if tokenizer is None else tokenizer
    pieces = stream_pieces(documents, join, tokenizer.separable, "words_and_lines")
    return _store(folder, pieces, tokenizer, examples=False)


def examples_of(folder: Path, texts: Sequence[str]) -> TokenStore:
    """Encode sums as examples of bytes."""
    pieces = example_pieces(Sums({"train": list(texts)}).documents("train"), "words_and_lines")
    return _store(folder, pieces, Bytes(), examples=True)


def _store(folder: Path, pieces: Any, tokenizer: Tokenizer, examples: bool) -> TokenStore:
    def build(into: Path) -> dict[str, Any]:
        return write_store(into, pieces, tokenizer, examples=examples, progress=lambda characters: None)

    return TokenStore(entry(folder, "toy", "toy", build))
