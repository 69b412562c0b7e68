"""What is learned of examples: which tokens, the targets of documents that have some, and the documents' groups."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from loopkit.data.encoding.pieces import TextPiece
from loopkit.errors import UserError

LEARN, TARGETS, GROUPS = "learn.bin", "targets.bin", "groups.bin"


class Answers:
    """What is learned of examples: flags of tokens, targets where documents have them, and groups."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.learn, self.targets, self.groups = bytearray(), bytearray(), array("I")
        self.names: dict[str | None, int] = {None: 0}
        self.in_place: bool | None = None  # until there is a document

    def add(self, piece: TextPiece, ids: list[np.ndarray], targets: list[np.ndarray | None]) -> None:
        """Take in a document."""
        in_place = any(target is not None for target in targets)
        if self.in_place not in (None, in_place):
            raise UserError(f"document {piece.key} has {'' if in_place else 'no '}targets, unlike those before it")
        self.in_place = in_place
        self.learn += _targeted(piece, targets, ids) if in_place else _flags(piece, ids)
        if in_place:
            pairs = zip(ids, targets, strict=True)
            filled = [np.zeros_like(each) if target is None else target for each, target in pairs]
            self.targets += np.concatenate(filled).astype(self.dtype).tobytes()
        self.groups.append(self.names.setdefault(piece.group, len(self.names)))

    def write(self, folder: Path) -> dict[str, Any]:
        """Write what there is, and return facts about it."""
        (folder / LEARN).write_bytes(self.learn)
        if self.in_place:
            (folder / TARGETS).write_bytes(self.targets)
        names = [name for name in self.names if name is not None]
        if names:
            (folder / GROUPS).write_bytes(np.array(self.groups, dtype="<u4").tobytes())
        return {"groups": names}


def _flags(piece: TextPiece, ids: list[np.ndarray]) -> bytes:
    """For each token whether it is learned; the first one cannot be, as nothing comes before it."""
    flags = np.concatenate([np.full(len(each), part.learn) for each, part in zip(ids, piece.parts, strict=True)])
    if not flags[1:].any():
        raise UserError(f"document {piece.key} leaves nothing to learn: no token of its answer follows another one")
    return flags.tobytes()


def _targeted(piece: TextPiece, targets: list[np.ndarray | None], ids: list[np.ndarray]) -> bytes:
    """For each token whether it has a target."""
    for part, target, each in zip(piece.parts, targets, ids, strict=True):
        if target is not None and len(target) != len(each):
            raise UserError(
                f"document {piece.key}: {part.text!r} has {len(each)} tokens and its target {part.target!r} has "
                f"{len(target)}; a target needs one token for each of its text: choose a tokenizer of single "
                "characters, or split the document into more parts"
            )
    pairs = zip(ids, targets, strict=True)
    flags = np.concatenate([np.full(len(each), target is not None) for each, target in pairs])
    if not flags.any():
        raise UserError(f"document {piece.key} leaves nothing to learn: its targets are empty")
    return flags.tobytes()
