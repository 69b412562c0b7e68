"""WikiText-2 and WikiText-103, from the hub or a local folder."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from loopkit.components.source import (
    TEST,
    TRAIN,
    VALIDATION,
    DataWarning,
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
    column_texts,
    fingerprint_files,
    listing,
    parquet_texts,
    text_lines,
)
from loopkit.errors import UserError
from loopkit.registry import register

DATASET = "Salesforce/wikitext"
EXPECTED = "a folder with files such as wiki.train.tokens and wiki.valid.raw, or parquet or .txt files"
_FILE_NAMES = {TRAIN: ("train",), VALIDATION: ("valid", "validation"), TEST: ("test",)}
_MIN_103_BYTES = 100_000_000  # the training splits have 11 MB and 540 MB


@register("source", "wikitext", paper="arXiv:1609.07843", layout="stream")
class WikiText(Source):
    r"""Wikipedia's good and featured articles, one document per line.

    Documents include their end of line, as on the hub. A blank line is ``" \n"``, as in the published files.
    Perplexity per word divides by the whitespace-separated words plus one end of line per line of the published files
    (217,646 for validation and 245,569 for test), independent of ``join`` and ``drop_empty``.

    Args:
        variant: The corpus. The raw variants have no <unk>; the others have a closed vocabulary of words.
        path: Folder with the files, instead of the hub: wiki.{train,valid,test}.{tokens,raw}, parquet or .txt.
        revision: Commit of the dataset on the hub, so that the text never changes.
        join: Text between two lines; null for none.
        drop_empty: Drop blank lines.
    """

    words: ClassVar[Words | None] = "words_and_lines"

    def __init__(
        self,
        *,
        variant: Literal["103-raw", "103", "2-raw", "2"] = "103-raw",
        path: Path | None = None,
        revision: str = "b08601e04326c79dfdd32d625aee71d232d685c3",
        join: str | None = None,
        drop_empty: bool = False,
    ) -> None:
        self.variant = variant
        self.path = path
        self.revision = revision
        self.join = join
        self.drop_empty = drop_empty
        self._checked: set[str] = set()

    def fingerprint(self, split: str) -> str:
        split = canonical_split(split)
        if self.path is None:
            content = f"{DATASET} {self.config} {self.revision} {split}"
        else:
            files = self._files(split)
            if split not in self._checked:
                self._warn_of_wrong_variant(split, files)
                self._checked.add(split)
            content = fingerprint_files(files)
        return hashlib.sha256(f"wikitext drop_empty={self.drop_empty} {content}".encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        rows = self._hub_rows(split) if self.path is None else _local_rows(self._files(split))
        pending: tuple[str, int] | None = None  # a line waits until the blank lines after it are counted
        num_blank, number = 0, 0
        for number, row in enumerate(rows, 1):
            if not row.strip():
                if self.drop_empty:
                    num_blank += 1
                    continue
                row = " \n"  # an empty string on the hub
            if pending is not None:
                yield _document(split, *pending, num_blank)
                num_blank = 0
            pending = (row, number)
        if pending is None:
            raise UserError(f"wikitext: the {split} split has no text ({number} lines, all blank); add text")
        yield _document(split, *pending, num_blank)

    @property
    def config(self) -> str:
        """Name of the variant on the hub, such as ``wikitext-103-raw-v1``."""
        return f"wikitext-{self.variant}-v1"

    def _hub_rows(self, split: str) -> Iterator[str]:
        remedy = f"set data.source.path to {EXPECTED}"
        splits = hub.load_dataset(DATASET, self.config, self.revision, remedy)
        if split not in splits:
            raise UserError(f"wikitext: unknown split {split!r}; choose one of {', '.join(splits)}")
        first = 1
        for batch in splits[split].iter(batch_size=ROWS):
            yield from column_texts(f"{DATASET}, {split}", "text", batch["text"], first)
            first += len(batch["text"])

    def _files(self, split: str) -> list[Path]:
        assert self.path is not None
        if not self.path.is_dir():
            problem = "is a file" if self.path.exists() else "does not exist"
            raise UserError(f"data.source.path: {self.path} {problem}; set it to {EXPECTED}")
        if split not in _FILE_NAMES:
            raise UserError(f"wikitext: unknown split {split!r}; choose one of {', '.join(_FILE_NAMES)}")
        folders = [self.path, self.path / self.config, self.path / self.config.removesuffix("-v1")]
        first, second = ("raw", "tokens") if self.variant.endswith("raw") else ("tokens", "raw")
        patterns = [f"wiki.{{}}.{first}", f"wiki.{{}}.{second}", "{}.parquet", "{}-*.parquet", "{}.txt"]
        by_split: dict[str, list[Path]] = {}
        for name, stems in _FILE_NAMES.items():
            globs = [(folder, p.format(stem)) for folder in folders for p in patterns for stem in stems]
            by_split[name] = next((files for folder, glob in globs if (files := sorted(folder.glob(glob)))), [])
        if by_split[split]:
            return by_split[split]
        if any(by_split.values()):
            existing = ", ".join(name for name, files in by_split.items() if files)
            raise UserError(
                f"data.source.path: {self.path} has no {split} split, only {existing}; "
                f"add wiki.{_FILE_NAMES[split][0]}.{first}, or remove path to download {self.config} from the hub"
            )
        raise UserError(f"data.source.path: {self.path} is not WikiText: {listing(self.path)}; set it to {EXPECTED}")

    def _warn_of_wrong_variant(self, split: str, files: list[Path]) -> None:
        """Warn if the files visibly belong to another variant."""
        signs = []
        head = "".join(row for row, _ in zip(_local_rows(files), range(ROWS), strict=False))
        if self.variant.endswith("raw") and "<unk>" in head:
            signs.append("contains <unk>, which the raw variants do not")
        elif not self.variant.endswith("raw") and "<unk>" not in head:
            signs.append("has no <unk> near its start, which the word-level variants have")
        size = sum(file.stat().st_size for file in files if file.suffix != ".parquet")
        if split == TRAIN and size and (size > _MIN_103_BYTES) != self.variant.startswith("103"):
            corpus = "WikiText-2" if size < _MIN_103_BYTES else "WikiText-103"
            signs.append(f"has {size / 1e6:,.1f} MB, like {corpus}")
        if signs:
            message = (
                f"data.source: variant is {self.variant}, but the {split} split in {self.path} {' and '.join(signs)}; "
                f"figures are not comparable with WikiText {self.variant}"
            )
            warnings.warn(message, DataWarning, stacklevel=3)


def _local_rows(files: list[Path]) -> Iterator[str]:
    for file in files:
        yield from parquet_texts(file, "text") if file.suffix.lower() == ".parquet" else text_lines(file)


def _document(split: str, text: str, line: int, num_blank: int) -> Document:
    return Document((Span(text),), f"{split}:{line}", count_lines(text) + num_blank)
