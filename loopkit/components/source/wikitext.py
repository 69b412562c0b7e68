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
    require_folder,
    text_lines,
)
from loopkit.errors import UserError
from loopkit.registry import register

DATASET = "Salesforce/wikitext"
WANTED = "a folder with wiki.train.tokens, wiki.valid.raw or the like, parquet or .txt files"
_FILE_NAMES = {TRAIN: ("train",), VALIDATION: ("valid", "validation"), TEST: ("test",)}
_BETWEEN_2_AND_103 = 100_000_000  # bytes: the training splits have 11 and 540 million


@register("source", "wikitext", paper="arXiv:1609.07843", layout="stream")
class WikiText(Source):
    r"""Wikipedia's good and featured articles, one document per line.

    A line keeps its end of line, as on the hub. The publication keeps no empty strings: a blank line is ``" \n"``.
    Perplexity per word divides by whitespace-separated words plus one end of line per line of the published files
    (217,646 for validation and 245,569 for test), whatever ``join`` and ``drop_empty`` make of them.

    Args:
        variant: Which corpus. The raw ones have no <unk>; the others have a closed vocabulary of words.
        path: Folder with the files, instead of the hub: wiki.{train,valid,test}.{tokens,raw}, parquet or .txt.
        revision: Commit of the dataset on the hub, so that the text is the same every time.
        join: Text put between two lines; null joins them as they stand in the file.
        drop_empty: Leave out blank lines.
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
        self._looked_at: set[str] = set()

    def fingerprint(self, split: str) -> str:
        split = canonical_split(split)
        if self.path is None:
            content = f"{DATASET} {self.config} {self.revision} {split}"
        else:
            files = self._files(split)
            if split not in self._looked_at:
                self._warn_of_another_corpus(split, files)
                self._looked_at.add(split)
            content = fingerprint_files(files)
        return hashlib.sha256(f"wikitext drop_empty={self.drop_empty} {content}".encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        rows = self._hub_rows(split) if self.path is None else _local_rows(self._files(split))
        waiting: tuple[str, int] | None = None  # a line is held back until the blank ones after it are known
        blank, number = 0, 0
        for number, row in enumerate(rows, 1):
            if not row.strip():
                if self.drop_empty:
                    blank += 1
                    continue
                row = " \n"  # the hub has "" for it
            if waiting is not None:
                yield _document(split, *waiting, blank)
                blank = 0
            waiting = (row, number)
        if waiting is None:
            raise UserError(f"wikitext: the {split} split has no text ({number} lines, all blank)")
        yield _document(split, *waiting, blank)

    @property
    def config(self) -> str:
        """Name of the variant on the hub, such as ``wikitext-103-raw-v1``."""
        return f"wikitext-{self.variant}-v1"

    def _hub_rows(self, split: str) -> Iterator[str]:
        remedy = f"set data.source.path to {WANTED}"
        splits = hub.load_dataset(DATASET, self.config, self.revision, remedy)
        if split not in splits:
            raise UserError(f"wikitext: there is no split {split!r}; there are {', '.join(splits)}")
        first = 1
        for batch in splits[split].iter(batch_size=ROWS):
            yield from column_texts(f"{DATASET}, {split}", "text", batch["text"], first)
            first += len(batch["text"])

    def _files(self, split: str) -> list[Path]:
        assert self.path is not None
        require_folder(self.path, WANTED)
        if split not in _FILE_NAMES:
            raise UserError(f"wikitext: there is no split {split!r}; there are {', '.join(_FILE_NAMES)}")
        folders = [self.path, self.path / self.config, self.path / self.config.removesuffix("-v1")]
        first, second = ("raw", "tokens") if self.variant.endswith("raw") else ("tokens", "raw")
        patterns = [f"wiki.{{}}.{first}", f"wiki.{{}}.{second}", "{}.parquet", "{}-*.parquet", "{}.txt"]
        found: dict[str, list[Path]] = {}
        for wanted, names in _FILE_NAMES.items():
            globs = [(folder, p.format(name)) for folder in folders for p in patterns for name in names]
            found[wanted] = next((files for folder, glob in globs if (files := sorted(folder.glob(glob)))), [])
        if found[split]:
            return found[split]
        if any(found.values()):
            there = ", ".join(name for name, files in found.items() if files)
            raise UserError(
                f"data.source.path: {self.path} has no {split} split, only {there}; "
                f"add wiki.{_FILE_NAMES[split][0]}.{first}, or leave path out to fetch {self.config} from the hub"
            )
        raise UserError(f"data.source.path: {self.path} is not WikiText: {listing(self.path)}; give {WANTED}")

    def _warn_of_another_corpus(self, split: str, files: list[Path]) -> None:
        """Say so when the folder holds visibly something else than the variant that the recipe names."""
        signs = []
        head = "".join(row for row, _ in zip(_local_rows(files), range(ROWS), strict=False))
        if self.variant.endswith("raw") and "<unk>" in head:
            signs.append("has <unk> in it, which the raw variants do not")
        elif not self.variant.endswith("raw") and "<unk>" not in head:
            signs.append("has no <unk> near its start, which the word-level variants do")
        size = sum(file.stat().st_size for file in files if file.suffix != ".parquet")
        if split == TRAIN and size and (size > _BETWEEN_2_AND_103) != self.variant.startswith("103"):
            corpus = "WikiText-2" if size < _BETWEEN_2_AND_103 else "WikiText-103"
            signs.append(f"is {size / 1e6:,.1f} MB long, as {corpus} is")
        if signs:
            what = f"variant is {self.variant}, but the {split} split in {self.path} {' and '.join(signs)}"
            consequence = f"figures will not compare with WikiText {self.variant}"
            warnings.warn(f"data.source: {what}; {consequence}", DataWarning, stacklevel=3)


def _local_rows(files: list[Path]) -> Iterator[str]:
    for file in files:
        yield from parquet_texts(file, "text") if file.suffix.lower() == ".parquet" else text_lines(file)


def _document(split: str, text: str, line: int, blank: int) -> Document:
    return Document((Span(text),), f"{split}:{line}", count_lines(text) + blank)
