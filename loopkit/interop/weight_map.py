"""Which tensors of a published model are which of ours, and how the numbers of one lie in the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Link:
    """The rows of some of their tensors, one below another, are the rows of some of ours, one below another.

    So a fused projection is three of theirs and one of ours, or the reverse, and a plain renaming is one and one. Rows
    one below another are neighbours in memory: the bytes of both sides are the same.

    Args:
        theirs: Name and shape of each of theirs.
        ours: Names of ours.
        flat: Only the order of the numbers is the same; the shapes of the two sides differ.
    """

    theirs: tuple[tuple[str, Shape], ...]
    ours: tuple[str, ...]
    flat: bool = False


def same(theirs: str, shape: Shape, ours: str) -> Link:
    """A tensor that has another name and is otherwise equal."""
    return Link(((theirs, shape),), (ours,))


@dataclass(frozen=True)
class DerivedTensor:
    """A tensor of theirs that holds no weights, but numbers that follow from the configuration.

    Args:
        shape: Its shape.
        make: Makes it, in fp32.
    """

    shape: Shape
    make: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Links:
    """All tensors of a model.

    Args:
        links: Every tensor of both sides, each in one link.
        copies: Names of theirs that hold a tensor a second time, with the name of the first.
        tables: Names of theirs that hold no weights.
        dropped: Names of theirs that have no place in our model.
        made: Tensors of ours that have none in theirs, in fp32.
    """

    links: tuple[Link, ...]
    copies: Mapping[str, str]
    tables: Mapping[str, DerivedTensor] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    made: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def theirs(self) -> dict[str, Shape]:
        """Every tensor of theirs but the copies, with its shape."""
        return {name: shape for link in self.links for name, shape in link.theirs}

    def unfit(self, ours: Mapping[str, Shape]) -> list[str]:
        """What of our model has no place in these links, or does not fit; empty where all is well."""
        linked = {name for link in self.links for name in link.ours} | set(self.made)
        found = [f"{name}: no tensor of theirs belongs to it" for name in ours if name not in linked]
        for link in self.links:
            names = ", ".join(link.ours)
            if missing := [name for name in link.ours if name not in ours]:
                found.append(f"{', '.join(missing)}: the model has no such tensor")
            elif link.flat:
                counts = [sum(map(prod, side)) for side in ((s for _, s in link.theirs), (ours[n] for n in link.ours))]
                if counts[0] != counts[1]:
                    found.append(f"{names}: {counts[1]} numbers, theirs are {counts[0]}")
            elif _stacked(shape for _, shape in link.theirs) != _stacked(ours[name] for name in link.ours):
                shapes = " + ".join(str(list(shape)) for _, shape in link.theirs)
                found.append(f"{names}: {[list(ours[name]) for name in link.ours]} is not {shapes}")
        return found

    def of_ours(self, ours: Mapping[str, Shape]) -> dict[str, list[TensorSlice]]:
        """For each of our tensors, the pieces of theirs that make it up."""
        return self._pieces(ours, backward=False)

    def of_theirs(self, ours: Mapping[str, Shape]) -> dict[str, list[TensorSlice]]:
        """For each of their tensors, copies included, the pieces of ours that make it up."""
        found = self._pieces(ours, backward=True)
        return found | {copy: found[first] for copy, first in self.copies.items()}

    def _pieces(self, ours: Mapping[str, Shape], backward: bool) -> dict[str, list[TensorSlice]]:
        found: dict[str, list[TensorSlice]] = {}
        for link in self.links:
            theirs = [(name, prod(shape)) for name, shape in link.theirs]
            mine = [(name, prod(ours[name])) for name in link.ours]
            wanted, given = (theirs, mine) if backward else (mine, theirs)
            found |= _overlaps(wanted, given)
        return found


@dataclass(frozen=True)
class TensorSlice:
    """Neighbouring numbers of one tensor.

    Args:
        name: The tensor.
        start: The first of them.
        stop: The one after the last.
    """

    name: str
    start: int
    stop: int


def _stacked(shapes: Iterable[Shape]) -> tuple[int, set[Shape]]:
    """Rows of tensors one below another, and the shapes that one row has."""
    listed = [shape or (1,) for shape in shapes]
    return sum(shape[0] for shape in listed), {shape[1:] for shape in listed}


def _overlaps(wanted: Sequence[tuple[str, int]], given: Sequence[tuple[str, int]]) -> dict[str, list[TensorSlice]]:
    """How one row of tensors, laid end to end, is cut from another of the same length."""
    return {
        name: [
            TensorSlice(source, max(start, first) - first, min(stop, last) - first)
            for source, first, last in _places(given)
            if max(start, first) < min(stop, last)
        ]
        for name, start, stop in _places(wanted)
    }


def _places(tensors: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    at = 0
    for name, count in tensors:
        yield name, at, at + count
        at += count
