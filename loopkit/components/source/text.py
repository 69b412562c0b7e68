"""Any text: local files, JSON lines, parquet, or a dataset on the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from loopkit.components.source import (
    TEST,
    TRAIN,
    VALIDATION,
    Document,
    Source,
    Span,
    Words,
    canonical_split,
    count_lines,
    hub,
)
from loopkit.components.source.files import (
    ROWS,
    check_column,
    column_texts,
    files_by_split,
    find_files,
    fingerprint_files,
    parquet_texts,
    text_lines,
)
from loopkit.components.source.formats import Format, check_not_json, check_text, format_of
from loopkit.components.source.held_out import split_of
from loopkit.components.source.rows import json_objects
from loopkit.errors import UserError
from loopkit.registry import Fraction, register

Unit = Literal["paragraph", "line", "file"]
Reader = Callable[[], Iterator[str]]

SUFFIXES = frozenset({".txt", ".md", ".jsonl", ".parquet"})
"""Files of a folder that are read; a file that is named may have any suffix."""


@register("source", "text", layout="stream", exactly_one=("path", "files", "dataset"))
class TextSource(Source):
    """Local text or a dataset of the hub, split by file or by a held-out share of its documents.

    Exactly one of path, files and dataset says where the text is. A folder whose files are called after splits
    (train.txt, validation-000.jsonl) is split by them; so is a dataset. A validation or test split that does not exist
    is held out of train: a hash of its text places a document, so equal documents never stand on both sides.

    A file is read as its suffix says, in upper or lower case: .jsonl and .ndjson are JSON lines, .json is a JSON list,
    .parquet is parquet, and anything else is plain text. A file whose content contradicts that is refused, and a
    warning lists the files of a folder that are not read. Its words, for a perplexity per word, are runs of characters
    between blanks.

    Args:
        path: A file, or a folder with .txt, .md, .jsonl or .parquet files, all levels.
        files: A file or folder for each split, as {train: a.txt, validation: b.txt}.
        dataset: Name of a dataset on the hub, as owner/name.
        config: Which configuration of the dataset.
        revision: Commit, branch or tag of the dataset; a commit lets a cached run start without the hub.
        key: Where the text is in a JSON line, parquet file or dataset.
        format: How every file is read, whatever its suffix; null goes by the suffix.
        unit: What one document of a plain text file is.
        join: Text put between two documents; null puts nothing.
        validation: Share of the documents held out for validation, where there is no such split.
        test: Share of the documents held out for test, where there is no such split.
    """

    words: ClassVar[Words | None] = "words"

    def __init__(
        self,
        *,
        path: Path | None = None,
        files: dict[str, Path] | None = None,
        dataset: str | None = None,
        config: str | None = None,
        revision: str | None = None,
        key: str = "text",
        format: Literal["text", "json_lines", "json", "parquet"] | None = None,
        unit: Unit = "paragraph",
        join: str | None = "\n\n",
        validation: Fraction = 0.05,
        test: Fraction = 0.05,
    ) -> None:
        given = [name for name, value in (("path", path), ("files", files), ("dataset", dataset)) if value is not None]
        if len(given) != 1:
            raise UserError(
                f"data.source: set exactly one of path, files and dataset, not {' and '.join(given) or 'none'}"
            )
        if validation + test >= 1:
            raise UserError(f"data.source: validation {validation} and test {test} leave nothing to train on")
        self.path, self.dataset, self.config, self.revision = path, dataset, config, revision
        self.files = None if files is None else {canonical_split(split): path for split, path in files.items()}
        self.key = key
        self.format: Format | None = format
        self.unit = unit
        self.join = join
        self.shares = {VALIDATION: validation, TEST: test}

    def fingerprint(self, split: str) -> str:
        split = canonical_split(split)
        if self.dataset is not None:
            pinned = self.revision is not None and len(self.revision) == 40
            content = self.revision if pinned else {name: part._fingerprint for name, part in self._rows.items()}
            where: Any = [self.dataset, self.config, content]
        else:
            where = {name: self._fingerprint(files) for name, files in self._local_files.items()}
        record = ["text", split, where, self.key, self.unit, self.shares]
        return hashlib.sha256(json.dumps(record).encode()).hexdigest()

    def _fingerprint(self, files: list[Path]) -> str:
        content = fingerprint_files(files, "text")
        return content if self.format is None else f"{self.format} {fingerprint_files(files)}"

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        parts = self._parts()
        carved = {name: share for name, share in self.shares.items() if name not in parts and share > 0}
        if split not in parts and split not in carved:
            raise UserError(f"data.source: there is no {split} split, only {', '.join([*parts, *carved])}")
        if split in carved and TRAIN not in parts:
            raise UserError(f"data.source: there is no {split} split and no train split to hold it out of")
        number = 0
        for number, text in enumerate(self._drawn(split, parts, carved), 1):
            yield Document((Span(text),), f"{split}:{number}", count_lines(text))
        if number == 0:
            share = (
                f"; a share of {carved[split]} of the documents left none, raise it or name files"
                if split in carved
                else ""
            )
            raise UserError(f"data.source: the {split} split of {self._where} has no text{share}")

    def _drawn(self, split: str, parts: dict[str, Reader], carved: dict[str, float]) -> Iterator[str]:
        texts = parts[TRAIN if split in carved else split]()
        if split != TRAIN and split not in carved:
            return texts
        return (text for text in texts if split_of(text, carved) == split)

    def _parts(self) -> dict[str, Reader]:
        """The splits that exist, each with what yields its texts."""
        if self.dataset is not None:
            return {canonical_split(name): partial(self._column, rows) for name, rows in self._rows.items()}
        return {name: partial(self._texts, files) for name, files in self._local_files.items()}

    @property
    def _where(self) -> str:
        return str(self.dataset or self.path or self.files)

    @cached_property
    def _rows(self) -> dict[str, Any]:
        remedy = "set data.source.path to a local file or folder instead of data.source.dataset"
        return dict(hub.load_dataset(str(self.dataset), self.config, self.revision, remedy))

    @cached_property
    def _local_files(self) -> dict[str, list[Path]]:
        if self.files is not None:
            found = {name: (path, f"data.source.files.{name}") for name, path in self.files.items()}
            return {name: find_files(path, option, SUFFIXES) for name, (path, option) in found.items()}
        assert self.path is not None
        return files_by_split(self.path, "data.source.path", SUFFIXES)

    def _column(self, part: Any) -> Iterator[str]:
        where = f"dataset {self.dataset}"
        check_column(where, self.key, part.column_names)
        first = 1
        for batch in part.iter(batch_size=ROWS):
            yield from filter(str.strip, column_texts(where, self.key, batch[self.key], first))
            first += len(batch[self.key])

    def _texts(self, files: list[Path]) -> Iterator[str]:
        for file in files:
            form = format_of(file, "text") if self.format is None else self.format
            if form == "parquet":
                yield from filter(str.strip, parquet_texts(file, self.key))
            elif form != "text":
                yield from filter(str.strip, (self._text_of(*item) for item in json_objects(file, form)))
            else:
                if self.format is None:
                    check_not_json(file)
                yield from plain_documents(file, self.unit)

    def _text_of(self, place: str, row: dict[str, Any]) -> str:
        if self.key not in row:
            there = ", ".join(map(repr, row)) or "nothing"
            raise UserError(f"{place}: no text under {self.key!r} (it has {there}); set data.source.key")
        return check_text(place, self.key, row[self.key], "remove the row, or set data.source.key")


def plain_documents(file: Path, unit: Unit) -> Iterator[str]:
    """The documents of a plain text file, without blank lines around them."""
    lines: list[str] = []
    for line in text_lines(file):
        if unit == "file" or (unit == "paragraph" and line.strip()):
            lines.append(line)
        else:
            yield from _document([line] if unit == "line" else lines)
            lines = []
    yield from _document(lines)


def _document(lines: list[str]) -> Iterator[str]:
    """The lines as one text, unless they are all blank."""
    text = "".join(lines).strip("\r\n")
    if text.strip():
        yield text
