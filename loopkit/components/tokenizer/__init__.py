"""The contract of a tokenizer, and loading one from a folder. No torch."""

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
    """Number of characters of a text that decoding its tokens does not restore.

    Args:
        unknown: Characters that are encoded as the unknown token.
        dropped: Characters that are in no token, or decoded to others, such as lowercase letters.
    """

    unknown: int = 0
    dropped: int = 0


def altered(text: str, back: str) -> int:
    """Count the characters by which two texts differ, as bags of characters; 0 if and only if they are equal."""
    if text == back:
        return 0
    before, after = Counter(text), Counter(back)
    return max((before - after).total(), (after - before).total(), 1)


class Tokenizer(ABC):
    """Converts text to token ids and back.

    Args:
        size: Number of tokens; ids are 0 to ``size - 1``.
        pad: Id of the padding token, or ``None``.
        bos: Id of the token that starts a text, or ``None``.
        eos: Id of the token that ends a text and generation, or ``None``.
        unknown: Id of the unknown token, or ``None``.
        other_ends: Ids of other tokens that end a text and generation.
        fit_on: Splits to fit the vocabulary on; empty if it is fixed.
        fit_joins: Whether ``fit`` receives a stream with the joins between its documents; else each document
            separately.
        separable: Whether a text may be cut between a letter or digit and the space or end of line after it, without
            changing its tokens. Long streams are then encoded in pieces; else each document is encoded at once.
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
        """All tokens that end a text and generation, ``eos`` first."""
        first = () if self.eos is None else (self.eos,)
        return tuple(dict.fromkeys((*first, *self.other_ends)))

    def fit(self, texts: Iterable[str]) -> None:  # noqa: B027  (optional)
        """Fit the vocabulary; does nothing by default."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode texts.

        Shapes: one integer array ``[tokens]`` per text.
        """

    def encode_literal(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode texts, with special tokens in them as plain text; by default the same as ``encode``.

        Shapes: one integer array ``[tokens]`` per text.
        """
        return self.encode(texts)

    @abstractmethod
    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Decode token ids; special tokens, including the unknown one, are omitted unless ``special``."""

    def lost(self, text: str) -> Lost:
        """Count what encoding ``text`` loses, by decoding it; override for a faster method."""
        return Lost(dropped=altered(text, self.decode(self.encode([text])[0].tolist())))

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything that ``restore`` needs, as plain JSON values."""

    @classmethod
    @abstractmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Build the tokenizer from its ``state``."""

    def published(self) -> dict[str, Any]:
        """Return the files of this tokenizer in Hugging Face format, name to JSON value; empty if not supported."""
        return {}

    def fingerprint(self) -> str:
        """Compute a digest: equal if and only if the encoding is equal."""
        return hashlib.sha256(json.dumps([self._type, self.state()], sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write the tokenizer to a folder, as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {"format": FORMAT, "type": self._type, "state": self.state()}
        (folder / FILE).write_text(json.dumps(record, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a tokenizer of this class from the folder that ``save`` wrote."""
        return cls.restore(_read(folder)["state"])

    @property
    def _type(self) -> str:
        return str(type(self).registration.name)  # type: ignore[attr-defined]


def load_tokenizer(folder: Path, spec: Spec | None = None) -> Tokenizer:
    """Load a tokenizer of any type from the folder that ``save`` wrote.

    Args:
        folder: The folder.
        spec: The recipe's tokenizer, whose type may be registered only by a plugin file of the recipe.

    Raises:
        UserError: If there is no tokenizer, or its file is damaged or of another format.
    """
    name = _read(folder)["type"]
    if spec is None or spec.schema.name != name:
        spec = Spec("tokenizer", name)
    loaded: Tokenizer = spec.target.load(folder)  # type: ignore[attr-defined]
    return loaded


def _read(folder: Path) -> dict[str, Any]:
    file = folder / FILE
    if not file.is_file():
        raise UserError(f"{folder} has no tokenizer ({FILE}); set the folder of a run, which contains one")
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
