"""Any text: local files, JSON lines, parquet, or a dataset on the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from loopkit.components.source import (
    TRAIN,
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
from loopkit.components.source.held_out import carved_splits, check_shares, split_of
from loopkit.components.source.rows import json_objects
from loopkit.errors import UserError
from loopkit.registry import Fraction, register

Unit = Literal["paragraph", "line", "file"]

SUFFIXES = frozenset({".txt", ".md", ".jsonl", ".parquet"})
"""Suffixes of the files that are read from a folder; a single file may have any suffix."""


@register("source", "text", layout="stream", exactly_one=("path", "files", "dataset"))
class TextSource(Source):
    """Local text or a dataset on the hub, split by file or by a held-out share of its documents.

    Set exactly one of path, files and dataset. Files of a folder that are named after splits (train.txt,
    validation-000.jsonl) are those splits, as are the splits of a dataset. A validation or test split that does not
    exist is held out of train by a hash of the text, so that copies of a document are in the same split.

    The suffix of a file decides how it is read, in upper or lower case: .jsonl and .ndjson are JSON lines, .json is a
    JSON list, .parquet is parquet, and others are plain text. Content that contradicts the suffix is an error, and a
    warning lists the files of a folder that are not read. Words are separated by whitespace.

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
        options = {"path": path, "files": files, "dataset": dataset}
        names = [name for name, value in options.items() if value is not None]
        if len(names) != 1:
            raise UserError(
                f"data.source: set exactly one of path, files and dataset, not {' and '.join(names) or 'none'}"
            )
        self.path, self.dataset, self.config, self.revision = path, dataset, config, revision
        self.files = None if files is None else {canonical_split(split): path for split, path in files.items()}
        self.key = key
        self.format: Format | None = format
        self.unit = unit
        self.join = join
        self.shares = check_shares(validation, test)

    def fingerprint(self, split: str) -> str:
        split = canonical_split(split)
        if self.dataset is not None:
            pinned = self.revision is not None and len(self.revision) == 40
            content = self.revision if pinned else {name: rows._fingerprint for name, rows in self._datasets.items()}
            data: Any = [self.dataset, self.config, content]
        else:
            data = {name: self._fingerprint(files) for name, files in self._local_files.items()}
        record = ["text", split, data, self.key, self.unit, self.shares]
        return hashlib.sha256(json.dumps(record).encode()).hexdigest()

    def _fingerprint(self, files: list[Path]) -> str:
        content = fingerprint_files(files, "text")
        return content if self.format is None else f"{self.format} {fingerprint_files(files)}"

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        carved = carved_splits(split, self._splits, self.shares)
        texts = self._read(TRAIN if split in carved else split)
        if split == TRAIN or split in carved:
            texts = (text for text in texts if split_of(text, carved) == split)
        number = 0
        for number, text in enumerate(texts, 1):
            yield Document((Span(text),), f"{split}:{number}", count_lines(text))
        if number == 0:
            source = self.dataset or self.path or self.files
            reason = f"; a share of {carved[split]} leaves none, raise it or set files" if split in carved else ""
            raise UserError(f"data.source: the {split} split of {source} has no text{reason}")

    @property
    def _splits(self) -> Collection[str]:
        return self._local_files if self.dataset is None else self._datasets

    def _read(self, split: str) -> Iterator[str]:
        return (
            self._column(self._datasets[split]) if self.dataset is not None else self._texts(self._local_files[split])
        )

    @cached_property
    def _datasets(self) -> dict[str, Any]:
        return hub.load_splits(str(self.dataset), self.config, self.revision)

    @cached_property
    def _local_files(self) -> dict[str, list[Path]]:
        if self.files is not None:
            return {name: find_files(path, f"data.source.files.{name}", SUFFIXES) for name, path in self.files.items()}
        assert self.path is not None
        return files_by_split(self.path, "data.source.path", SUFFIXES)

    def _column(self, rows: Any) -> Iterator[str]:
        where = f"dataset {self.dataset}"
        check_column(where, self.key, rows.column_names)
        first = 1
        for batch in rows.iter(batch_size=ROWS):
            yield from filter(str.strip, column_texts(where, self.key, batch[self.key], first))
            first += len(batch[self.key])

    def _texts(self, files: list[Path]) -> Iterator[str]:
        for file in files:
            file_format = format_of(file, "text") if self.format is None else self.format
            if file_format == "parquet":
                yield from filter(str.strip, parquet_texts(file, self.key))
            elif file_format != "text":
                yield from filter(str.strip, (self._text_of(*item) for item in json_objects(file, file_format)))
            else:
                if self.format is None:
                    check_not_json(file)
                yield from plain_documents(file, self.unit)

    def _text_of(self, place: str, row: dict[str, Any]) -> str:
        if self.key not in row:
            keys = ", ".join(map(repr, row)) or "nothing"
            raise UserError(f"{place}: no text under {self.key!r} (it has {keys}); set data.source.key")
        return check_text(place, self.key, row[self.key], "remove the row, or set data.source.key")


def plain_documents(file: Path, unit: Unit) -> Iterator[str]:
    """Yield the documents of a plain text file, without blank lines around them."""
    lines: list[str] = []
    for line in text_lines(file):
        if unit == "file" or (unit == "paragraph" and line.strip()):
            lines.append(line)
        else:
            yield from _document([line] if unit == "line" else lines)
            lines = []
    yield from _document(lines)


def _document(lines: list[str]) -> Iterator[str]:
    """Yield the lines as one text, unless all are blank."""
    text = "".join(lines).strip("\r\n")
    if text.strip():
        yield text
