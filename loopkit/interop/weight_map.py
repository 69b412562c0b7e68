"""Which tensors of a published model are which of a run's, and how the numbers of one lie in the other.

*Published* tensors have the names of the form, *native* tensors those of loopkit's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorGroup:
    """Published tensors whose rows, one below another, are the rows of some native tensors.

    A renaming has one tensor on each side, a fused projection three published and one native, a split one the reverse.

    Args:
        published: Name and shape of each published tensor.
        native: Names of the native tensors.
        reshaped: Only the order of the numbers is the same; the shapes of the two sides differ.
    """

    published: tuple[tuple[str, Shape], ...]
    native: tuple[str, ...]
    reshaped: bool = False


def renamed(published: str, shape: Shape, native: str) -> TensorGroup:
    """A tensor that differs only in its name."""
    return TensorGroup(((published, shape),), (native,))


@dataclass(frozen=True)
class Buffer:
    """A published tensor without weights: its numbers follow from the configuration.

    Args:
        shape: Its shape.
        compute: Computes it, in fp32.
    """

    shape: Shape
    compute: Callable[[], Tensor]

    def difference(self, stored: Tensor) -> float:
        """The largest difference to a stored tensor of this shape, relative to 1 + the size of the number."""
        expected = self.compute().double()
        error = ((stored.double() - expected).abs() / (1 + expected.abs())).max().item()
        return error if error == error else float("inf")

    def matches(self, stored: Tensor) -> bool:
        """Whether a stored tensor is this buffer, within the rounding of its type and of another machine's cosine."""
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 2e-2}.get(stored.dtype, 1e-4)
        return tuple(stored.shape) == self.shape and self.difference(stored) <= tolerance


@dataclass(frozen=True)
class WeightMap:
    """All tensors of a model.

    Args:
        groups: Every tensor of both sides, each in one group.
        aliases: Published names that repeat a tensor, with the name of the first.
        buffers: Published tensors without weights, by name.
        dropped: Published names without a place in the native model.
        new: Native tensors without a published one.
    """

    groups: tuple[TensorGroup, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    new: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def published(self) -> dict[str, Shape]:
        """Every published tensor with weights, aliases left out, with its shape."""
        return {name: shape for group in self.groups for name, shape in group.published}

    @property
    def names(self) -> set[str]:
        """Every published name that this map accounts for."""
        return {*self.published, *self.aliases, *self.buffers, *self.dropped}

    def to_native(self, read: Callable[[str], Tensor], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
        """Convert published tensors to native ones.

        Args:
            read: Returns a published tensor by name.
            shapes: Shape of every native tensor.
        """
        native = dict(self.new)
        for group in self.groups:
            native |= _restack([read(name) for name, _ in group.published], {n: shapes[n] for n in group.native})
        return native

    def to_published(self, native: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert native tensors to published ones, without aliases and buffers."""
        published: dict[str, Tensor] = {}
        for group in self.groups:
            published |= _restack([native[name] for name in group.native], dict(group.published))
        return published

    def problems(self, native: Mapping[str, Shape]) -> list[str]:
        """List the native tensors that this map leaves out or whose shapes do not fit."""
        mapped = {name for group in self.groups for name in group.native} | set(self.new)
        problems = [f"{name}: no published tensor belongs to it" for name in native if name not in mapped]
        for group in self.groups:
            if missing := [name for name in group.native if name not in native]:
                problems.append(f"{', '.join(missing)}: the model has no such tensor")
                continue
            left, right = [shape for _, shape in group.published], [native[name] for name in group.native]
            measure = _count if group.reshaped else _stack
            if measure(left) != measure(right):
                problems.append(f"{', '.join(group.native)}: the shapes {right} do not hold the published {left}")
        return problems


def _restack(tensors: list[Tensor], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Lay the numbers of some tensors end to end and cut them into tensors of other shapes."""
    flat = tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = flat.split([prod(shape) for shape in shapes.values()])
    if len(parts) > 1:
        parts = tuple(part.clone() for part in parts)  # safetensors refuses parts of one storage
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _count(shapes: Iterable[Shape]) -> int:
    return sum(prod(shape) for shape in shapes)


def _stack(shapes: Iterable[Shape]) -> tuple[int, set[Shape]]:
    """Rows of tensors one below another, and the shapes of one row."""
    padded = [shape or (1,) for shape in shapes]
    return sum(shape[0] for shape in padded), {shape[1:] for shape in padded}
