"""How text becomes numbers: the contract of a tokenizer, and how one is read back from a folder. No torch."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from loopkit.errors import FileError, UserError, file_errors
from loopkit.registry import Spec

FILE = "loopkit_tokenizer.json"
FORMAT = 1


@dataclass(frozen=True)
class Lost:
    """Characters of a text that decoding its tokens would not give back.

    Args:
        unknown: Characters inside of tokens that became the unknown token.
        dropped: Characters that became no token at all, or come back as others, such as small letters for capitals.
    """

    unknown: int = 0
    dropped: int = 0


def altered(text: str, back: str) -> int:
    """How many characters it takes, at the least, to turn ``text`` into ``back``: 0 only where they are equal."""
    if text == back:
        return 0
    before, after = Counter(text), Counter(back)
    return max((before - after).total(), (after - before).total(), 1)


class Tokenizer(ABC):
    """Text to token numbers and back.

    Args:
        size: Number of tokens; numbers run from 0 to ``size - 1``.
        pad: Number of the padding token; ``None``: there is none.
        bos: Number of the token that starts a text; ``None``: there is none.
        eos: Number of the token that ends a text, and generation; ``None``: there is none.
        unknown: Number of the token for text that has no other; ``None``: there is none.
        other_ends: Tokens other than ``eos`` that end a text as well.
        fit_on: Splits that ``fit`` learns from; empty where the vocabulary is fixed.
        fit_joins: Whether ``fit`` receives the texts that will be encoded, with what joins the documents of a stream;
            else each document alone.
        separable: Whether cutting a text between a letter or digit and the blank or end of line after it, and encoding
            both parts, always gives what encoding the whole gives. Long streams are then encoded piece by piece; else
            each document is encoded by itself.
    """

    size: int
    pad: int | None = None
    bos: int | None = None
    eos: int | None = None
    unknown: int | None = None
    other_ends: tuple[int, ...] = ()
    fit_on: tuple[str, ...] = ()
    fit_joins: bool = True
    separable: bool = False

    @property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a text, ``eos`` first; generation stops at each of them."""
        first = () if self.eos is None else (self.eos,)
        return tuple(dict.fromkeys((*first, *self.other_ends)))

    def fit(self, texts: Iterable[str]) -> None:  # noqa: B027  (a fixed vocabulary has nothing to learn)
        """Learn the vocabulary; nothing to do where it is fixed."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token numbers of each text.

        Shapes: one integer array ``[tokens]`` per text.
        """

    def encode_literal(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The same, except that the text of a special token is text; nothing else where texts never become such tokens.

        Shapes: one integer array ``[tokens]`` per text.
        """
        return self.encode(texts)

    @abstractmethod
    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of token numbers; special tokens, the unknown one among them, are left out unless ``special``."""

    def lost(self, text: str) -> Lost:
        """What encoding ``text`` loses, judged by decoding it; a tokenizer that can tell faster overrides this."""
        return Lost(dropped=altered(text, self.decode(self.encode([text])[0].tolist())))

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything that ``restore`` needs, as plain JSON values."""

    @classmethod
    @abstractmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """The tokenizer that had this ``state``."""

    def published(self) -> dict[str, Any]:
        """The files that say this tokenizer in Hugging Face form, as name to JSON value; none where nothing can."""
        return {}

    def fingerprint(self) -> str:
        """Digest of the content: equal exactly where encoding is."""
        return hashlib.sha256(json.dumps([self._type, self.state()], sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write the tokenizer to a folder, as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {"format": FORMAT, "type": self._type, "state": self.state()}
        (folder / FILE).write_text(json.dumps(record, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a tokenizer of this class that ``save`` wrote."""
        return cls.restore(_read(folder)["state"])

    @property
    def _type(self) -> str:
        return str(type(self).registration.name)  # type: ignore[attr-defined]


def load_tokenizer(folder: Path, known: Spec | None = None) -> Tokenizer:
    """Read a tokenizer of any type from the folder that ``save`` wrote it to.

    Args:
        folder: The folder.
        known: The recipe's choice, for one that comes from a file of the recipe's own.

    Raises:
        UserError: If there is none.
        ValueError: If the file is damaged or of a newer format.
    """
    name = _read(folder)["type"]
    spec = known if known is not None and known.schema.name == name else Spec("tokenizer", name)
    loaded: Tokenizer = spec.target.load(folder)  # type: ignore[attr-defined]
    return loaded


def _read(folder: Path) -> dict[str, Any]:
    file = folder / FILE
    if not file.is_file():
        raise UserError(f"{folder} has no tokenizer ({FILE}); it is written beside a run's recipe")
    try:
        with file_errors(file, "read"):
            record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileError:
        raise
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); restore it from a copy of the run") from error
    if record.get("format") != FORMAT:
        raise UserError(f"{file} has format {record.get('format')!r}, not {FORMAT}; use the loopkit that wrote it")
    return record
