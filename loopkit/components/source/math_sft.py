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
    TEST,
    TRAIN,
    VALIDATION,
    DataWarning,
    Document,
    Source,
    Span,
    canonical_split,
    hub,
)
from loopkit.components.source.files import ROWS, files_by_split, fingerprint_files
from loopkit.components.source.held_out import split_of
from loopkit.components.source.rows import SUFFIXES, Row, as_texts, no_column, read_rows
from loopkit.errors import UserError
from loopkit.registry import Fraction, register

HERE = "\0"
"""Stands for a content while the text around it is made."""


@register(
    "source",
    "math_sft",
    paper="arXiv:2605.26733",
    layout="examples",
    exactly_one=("path", "dataset"),
    examples="sample",
)
class MathSft(Source):
    """Problems with solutions: the model reads the problem in ChatML and learns the solution and the end of its turn.

    Rows that lack either are left out, blank ones too, and a warning counts them. Blank space around a problem or
    solution is removed, so that tokens do not depend on where the prompt is cut from the answer. Marks of turns that
    stand in a problem or solution stay text: they never become the tokens that begin or end a turn. Formulas have no
    words, so there is no perplexity per word.

    Exactly one of path and dataset says where the rows are. A file called after a split is that split, so is one of the
    dataset; a validation or test split that does not exist is held out of train, by a hash of the problem.

    Args:
        path: A .jsonl, .json or .parquet file, or a folder with some, all levels.
        dataset: Name of a dataset on the hub, as owner/name.
        revision: Commit, branch or tag of the dataset; a commit lets a cached run start without the hub.
        problem: Column with the problem.
        solution: Column with the solution.
        system: What the system says first; null leaves its turn out.
        sample: Take this many rows of train at random, those held out among them; null takes all.
        seed: Of the sample, the same rows that datasets' own shuffle puts first.
        validation: Share of the problems held out for validation, where there is no such split.
        test: Share of the problems held out for test, where there is no such split.

    Paper: arXiv:2605.26733 takes 400,000 rows with seed 74 and holds none out.
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
        if validation + test >= 1:
            raise UserError(f"data.source: validation {validation} and test {test} leave nothing to train on")
        self.path, self.dataset, self.revision = path, dataset, revision
        self.columns = (problem, solution)
        self.system = system
        self.sample, self.seed = sample, seed
        self.shares = {VALIDATION: validation, TEST: test}
        self._warned: set[str] = set()

    def fingerprint(self, split: str) -> str:
        if self.dataset is not None:
            pinned = self.revision is not None and len(self.revision) == 40
            content = self.revision if pinned else {name: part._fingerprint for name, part in self._parts.items()}
            where: Any = [self.dataset, content]
        else:
            where = {name: fingerprint_files(files, "json_lines") for name, files in self._files.items()}
        options = [self.columns, self.system, self.sample, self.seed, self.shares]
        return hashlib.sha256(json.dumps(["math_sft", canonical_split(split), where, options]).encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        there = self._parts if self.dataset is not None else self._files
        carved = {name: share for name, share in self.shares.items() if name not in there and share > 0}
        if split not in there and split not in carved:
            raise UserError(f"data.source: there is no {split} split, only {', '.join([*there, *carved])}")
        if split in carved and TRAIN not in there:
            raise UserError(f"data.source: there is no {split} split and no train split to hold it out of")
        number = 0
        for number, (problem, solution) in self._drawn(split, carved):
            yield Document(self._parts_of(problem, solution), f"{split}:{number}")
        if number == 0:
            share = f"; a share of {carved[split]} left none, raise data.source.{split}" if split in carved else ""
            raise UserError(
                f"data.source: the {split} split of {self.dataset or self.path} has no row with text under both of "
                f"{' and '.join(map(repr, self.columns))}{share}"
            )

    def _parts_of(self, problem: str, solution: str) -> tuple[Span, ...]:
        before, between, end = self._around
        return (
            Span(before, learn=False),
            Span(problem, learn=False, literal=True),
            Span(between, learn=False),
            Span(solution, literal=True),
            Span(end),
        )

    @cached_property
    def _around(self) -> tuple[str, str, str]:
        """The text before a problem, between it and its solution, and the mark that ends the solution's turn."""
        first = [] if self.system is None else [("system", self.system)]
        before, between = chatml([*first, ("user", HERE)], open_turn=True).split(HERE)
        _, after = chatml([("assistant", HERE)]).split(HERE)
        return before, between, after.rstrip("\n")

    def _drawn(self, split: str, carved: dict[str, float]) -> Iterator[tuple[int, tuple[str, str]]]:
        """Number and content of the rows of a split."""
        name = TRAIN if split in carved else split
        chosen = self._chosen if name == TRAIN and self.sample is not None else None
        for number, row in enumerate(self._whole(name), 1):
            if chosen is not None and not chosen[number - 1]:
                continue
            if name != TRAIN or split_of(row[0], carved) == split:
                yield number, row

    @cached_property
    def _chosen(self) -> np.ndarray:
        """Which of the rows of train belong to the sample."""
        count = sum(1 for _ in self._whole(TRAIN))
        assert self.sample is not None
        if self.sample > count:
            raise UserError(f"data.source.sample: there are {count:,} rows, not {self.sample:,}; set at most {count}")
        chosen = np.zeros(count, dtype=bool)
        chosen[np.random.default_rng(self.seed).permutation(count)[: self.sample]] = True
        return chosen

    def _whole(self, name: str) -> Iterator[tuple[str, str]]:
        """The rows of a split that have both a problem and a solution; a warning counts the others."""
        without: list[str] = []
        rows = 0
        for place, (problem, solution) in self._rows(name):
            rows += 1
            if problem is not None and solution is not None and problem.strip() and solution.strip():
                yield problem.strip(), solution.strip()
            else:
                without.append(place)
        if without and name not in self._warned:
            self._warned.add(name)
            message = (
                f"data.source: {len(without):,} of {rows:,} rows of the {name} split lack a text under one of "
                f"{' and '.join(map(repr, self.columns))} and are left out, the first at {without[0]}"
            )
            warnings.warn(message, DataWarning, stacklevel=2)

    def _rows(self, name: str) -> Iterator[tuple[str, Row]]:
        """The rows of a split with their places."""
        if self.dataset is None:
            for file in self._files[name]:
                yield from read_rows(file, self.columns)
            return
        part, where = self._parts[name], f"dataset {self.dataset}, {name}"
        for column in self.columns:
            if column not in part.column_names:
                raise no_column(where, column, part.column_names)
        number = 0
        for batch in part.select_columns(list(self.columns)).iter(batch_size=ROWS):
            for row in zip(*(batch[column] for column in self.columns), strict=True):
                number += 1
                place = f"{where}: row {number}"
                yield place, as_texts(place, self.columns, row)

    @cached_property
    def _parts(self) -> dict[str, Any]:
        remedy = "set data.source.path to a local file or folder instead of data.source.dataset"
        splits = hub.load_dataset(str(self.dataset), None, self.revision, remedy)
        return {canonical_split(name): part for name, part in splits.items()}

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        assert self.path is not None
        return files_by_split(self.path, "data.source.path", SUFFIXES)
