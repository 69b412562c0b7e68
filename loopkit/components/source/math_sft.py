"""Worked mathematics problems as conversations, for fine-tuning on the solutions."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from loopkit.components.chat import chatml
from loopkit.components.source import (
    TRAIN,
    DataWarning,
    Document,
    Source,
    Span,
    canonical_split,
    hub,
)
from loopkit.components.source.files import ROWS, check_column, files_by_split, fingerprint_files
from loopkit.components.source.held_out import carved_splits, check_shares, split_of
from loopkit.components.source.rows import SUFFIXES, Row, as_texts, read_rows
from loopkit.errors import UserError
from loopkit.registry import Fraction, register

PLACEHOLDER = "\0"
"""A content whose place in the template is to be found."""


@register(
    "source",
    "math_sft",
    paper="arXiv:2605.26733",
    layout="examples",
    exactly_one=("path", "dataset"),
    examples="sample",
)
class MathSft(Source):
    """Problems with solutions in ChatML; the solution and the end of its turn are learned.

    Rows without a problem or solution are dropped, and a warning counts them. Whitespace around both is stripped, so
    that the border between prompt and answer does not affect tokens. Special tokens in a problem or solution are
    encoded as plain text and never start or end a turn. Perplexity per word is undefined.

    Set exactly one of path and dataset. A file that is named after a split is that split, as are the splits of a
    dataset. A validation or test split that does not exist is held out of train, by a hash of the problem.

    Args:
        path: A .jsonl, .json or .parquet file, or a folder of them, at all levels.
        dataset: Name of a dataset on the hub, as owner/name.
        revision: Commit, branch or tag of the dataset; a commit lets a cached run start without the hub.
        problem: Column of the problem.
        solution: Column of the solution.
        system: System prompt; null omits its turn.
        sample: Use a random sample of this many rows of train, from which held-out rows are taken; null uses all.
        seed: Seed of the sample, which is the start of the shuffle of the datasets library with this seed.
        validation: Share of the problems held out for validation, where there is no such split.
        test: Share of the problems held out for test, where there is no such split.

    Paper: arXiv:2605.26733 uses 400,000 rows with seed 74 and holds none out.
    """

    layout: ClassVar[Literal["stream", "examples"]] = "examples"

    def __init__(
        self,
        *,
        path: Path | None = None,
        dataset: str | None = None,
        revision: str | None = None,
        problem: str = "problem",
        solution: str = "solution",
        system: str | None = "You are a helpful assistant that can assist users with reasoning.",
        sample: PositiveInt | None = None,
        seed: NonNegativeInt = 74,
        validation: Fraction = 0.01,
        test: Fraction = 0.0,
    ) -> None:
        if (path is None) == (dataset is None):
            raise UserError("data.source: set exactly one of path and dataset")
        self.path, self.dataset, self.revision = path, dataset, revision
        self.columns = (problem, solution)
        self.system = system
        self.sample, self.seed = sample, seed
        self.shares = check_shares(validation, test)
        self._warned: set[str] = set()

    def fingerprint(self, split: str) -> str:
        if self.dataset is not None:
            pinned = self.revision is not None and len(self.revision) == 40
            content = self.revision if pinned else {name: rows._fingerprint for name, rows in self._datasets.items()}
            data: Any = [self.dataset, content]
        else:
            data = {name: fingerprint_files(files, "json_lines") for name, files in self._files.items()}
        options = [self.columns, self.system, self.sample, self.seed, self.shares]
        return hashlib.sha256(json.dumps(["math_sft", canonical_split(split), data, options]).encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        carved = carved_splits(split, self._datasets if self.dataset is not None else self._files, self.shares)
        number = 0
        for number, (problem, solution) in self._numbered_rows(split, carved):
            yield Document(self._spans(problem, solution), f"{split}:{number}")
        if number == 0:
            reason = f"; a share of {carved[split]} leaves none, raise data.source.{split}" if split in carved else ""
            raise UserError(
                f"data.source: the {split} split of {self.dataset or self.path} has no row with text under both of "
                f"{' and '.join(map(repr, self.columns))}{reason}"
            )

    def _spans(self, problem: str, solution: str) -> tuple[Span, ...]:
        before, between, end = self._template
        return (
            Span(before, learn=False),
            Span(problem, learn=False, literal=True),
            Span(between, learn=False),
            Span(solution, literal=True),
            Span(end),
        )

    @cached_property
    def _template(self) -> tuple[str, str, str]:
        """The text before a problem, between problem and solution, and the mark that ends the solution's turn."""
        system = [] if self.system is None else [("system", self.system)]
        before, between = chatml([*system, ("user", PLACEHOLDER)], open_turn=True).split(PLACEHOLDER)
        _, after = chatml([("assistant", PLACEHOLDER)]).split(PLACEHOLDER)
        return before, between, after.rstrip("\n")

    def _numbered_rows(self, split: str, carved: dict[str, float]) -> Iterator[tuple[int, tuple[str, str]]]:
        """Yield number and content of the rows of a split."""
        name = TRAIN if split in carved else split
        in_sample = self._in_sample if name == TRAIN and self.sample is not None else None
        for number, row in enumerate(self._complete_rows(name), 1):
            if in_sample is not None and not in_sample[number - 1]:
                continue
            if name != TRAIN or split_of(row[0], carved) == split:
                yield number, row

    @cached_property
    def _in_sample(self) -> np.ndarray:
        """Whether each row of train is in the sample."""
        num_rows = sum(1 for _ in self._complete_rows(TRAIN))
        assert self.sample is not None
        if self.sample > num_rows:
            raise UserError(f"data.source.sample: {self.sample:,} is more than the {num_rows:,} rows; lower it")
        mask = np.zeros(num_rows, dtype=bool)
        mask[np.random.default_rng(self.seed).permutation(num_rows)[: self.sample]] = True
        return mask

    def _complete_rows(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the rows of a split that have a problem and a solution; warn of the others."""
        incomplete: list[str] = []
        num_rows = 0
        for place, (problem, solution) in self._rows(name):
            num_rows += 1
            if problem is not None and solution is not None and problem.strip() and solution.strip():
                yield problem.strip(), solution.strip()
            else:
                incomplete.append(place)
        if incomplete and name not in self._warned:
            self._warned.add(name)
            message = (
                f"data.source: {len(incomplete):,} of {num_rows:,} rows of the {name} split have no text under one of "
                f"{' and '.join(map(repr, self.columns))} and are dropped, the first at {incomplete[0]}"
            )
            warnings.warn(message, DataWarning, stacklevel=2)

    def _rows(self, name: str) -> Iterator[tuple[str, Row]]:
        """Yield the rows of a split with their positions."""
        if self.dataset is None:
            for file in self._files[name]:
                yield from read_rows(file, self.columns)
            return
        rows, where = self._datasets[name], f"dataset {self.dataset}, {name}"
        for column in self.columns:
            check_column(where, column, rows.column_names)
        number = 0
        for batch in rows.select_columns(list(self.columns)).iter(batch_size=ROWS):
            for row in zip(*(batch[column] for column in self.columns), strict=True):
                number += 1
                place = f"{where}: row {number}"
                yield place, as_texts(place, self.columns, row)

    @cached_property
    def _datasets(self) -> dict[str, Any]:
        return hub.load_splits(str(self.dataset), None, self.revision)

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        assert self.path is not None
        return files_by_split(self.path, "data.source.path", SUFFIXES)
