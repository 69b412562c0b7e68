"""Learned tokens, targets and groups of examples, on disk."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from loopkit.data.encoding.pieces import TextPiece
from loopkit.errors import UserError
from loopkit.plural import plural

LEARN, TARGETS, GROUPS = "learn.bin", "targets.bin", "groups.bin"


class Answers:
    """Collects the flags of learned tokens, the targets and the groups of documents."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.learn, self.targets, self.groups = bytearray(), bytearray(), array("I")
        self.names: dict[str | None, int] = {None: 0}
        self.in_place: bool | None = None  # None before the first document

    def add(self, piece: TextPiece, ids: list[np.ndarray], targets: list[np.ndarray | None]) -> None:
        """Add a document."""
        in_place = any(target is not None for target in targets)
        if self.in_place not in (None, in_place):
            raise UserError(
                f"document {piece.key} has {'' if in_place else 'no '}targets, unlike earlier documents; "
                "give every document targets, or none"
            )
        self.in_place = in_place
        self.learn += _target_flags(piece, targets, ids) if in_place else _learn_flags(piece, ids)
        if in_place:
            pairs = zip(ids, targets, strict=True)
            filled = [np.zeros_like(tokens) if target is None else target for tokens, target in pairs]
            self.targets += np.concatenate(filled).astype(self.dtype).tobytes()
        self.groups.append(self.names.setdefault(piece.group, len(self.names)))

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the files and return facts about them."""
        (folder / LEARN).write_bytes(self.learn)
        if self.in_place:
            (folder / TARGETS).write_bytes(self.targets)
        names = [name for name in self.names if name is not None]
        if names:
            (folder / GROUPS).write_bytes(np.array(self.groups, dtype="<u4").tobytes())
        return {"groups": names}


def _learn_flags(piece: TextPiece, ids: list[np.ndarray]) -> bytes:
    """Flag the learned tokens of a document; the first token has no context and is never scored."""
    flags = np.concatenate([np.full(len(tokens), part.learn) for tokens, part in zip(ids, piece.parts, strict=True)])
    if not flags[1:].any():
        raise UserError(
            f"document {piece.key} has nothing to learn: no token of its answer follows another token; remove it, or "
            "put text before the answer"
        )
    return flags.tobytes()


def _target_flags(piece: TextPiece, targets: list[np.ndarray | None], ids: list[np.ndarray]) -> bytes:
    """Flag the tokens of a document that have a target."""
    for part, target, tokens in zip(piece.parts, targets, ids, strict=True):
        if target is not None and len(target) != len(tokens):
            raise UserError(
                f"document {piece.key}: {part.text!r} has {plural(len(tokens), 'token')} and its target "
                f"{part.target!r} has {len(target)}; both must have the same number: choose a tokenizer "
                "of single characters, or split the document into more parts"
            )
    pairs = zip(ids, targets, strict=True)
    flags = np.concatenate([np.full(len(tokens), target is not None) for tokens, target in pairs])
    if not flags.any():
        raise UserError(f"document {piece.key} has nothing to learn: its targets are empty; remove it")
    return flags.tobytes()
