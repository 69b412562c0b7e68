"""The loop: x = embedding;  e = prelude(x);  c = start(e);  K times s = core(injection(c, e)), c = carry(s);
z = readout(coda(s)).

Dims: B sequences, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from loopkit.interop.templates.blocks import BLOCKS, CORES, Coda, Prelude
from loopkit.interop.templates.layers import POSITIONS, CausalAttention, NoPosition, Options, Pass, build
from loopkit.interop.templates.parts import CARRIES, GATES, INJECTIONS, READOUTS, STARTS


class Embedding(nn.Module):
    """dropout(position(scale * table[tokens]))."""

    def __init__(self, vocabulary: int, width: int, *, scale: float | str, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.scale = math.sqrt(width) if scale == "sqrt_width" else float(scale)
        self.dropout = dropout

    def forward(self, vectors: Tensor, positions: Tensor, position: NoPosition) -> Tensor:
        """Rows of the table, ``[B, T, D]``, to the input of the prelude."""
        x = position.embed(vectors if self.scale == 1.0 else vectors * self.scale, positions)
        return F.dropout(x, self.dropout, self.training)


class LoopedParts(nn.Module):
    """A module that has the parts of a looped model as its children."""

    def build_parts(self, section: Mapping[str, Any], *, vocabulary: int, max_length: int, max_loops: int) -> None:
        """Add the parts.

        Args:
            section: The resolved ``model`` section of the recipe.
            vocabulary: Number of tokens.
            max_length: Longest sequence, in tokens.
            max_loops: Maximum number of loops in training.
        """
        width, layers = section["width"], section["core"]["layers"]
        self.embedding = Embedding(vocabulary, width, **section["embedding"])
        self.position: Any = build(POSITIONS, section["position"], width, max_length)
        first = 0

        def blocks(count: int, spec: Options | None, depth: Mapping[str, int]) -> list[nn.Module]:
            nonlocal first
            numbers, first = range(first, first + count), first + count
            spec = spec or section["block"]
            return [build(BLOCKS, spec, width, self.position, i, vocabulary, depth) for i in numbers]

        def stage(kind: type[Prelude], config: Options) -> Prelude:
            once = {"max_loops": 0, "num_layers": 0}
            return kind(blocks(config["layers"], config["block"], once), width, config["norm"], config["project"])

        self.prelude = stage(Prelude, section["prelude"])
        self.start: Any = build(STARTS, section["start"])
        self.injection: Any = build(INJECTIONS, section["injection"], width)
        in_core = {"max_loops": max_loops, "num_layers": layers}
        self.core: Any = CORES[section["core"]["type"]](blocks(layers, None, in_core))
        self.carry: Any = build(CARRIES, section["carry"], width)
        self.coda = stage(Coda, section["coda"])
        self.readout: Any = build(READOUTS, section["readout"], width, max_loops)
        self.gate: Any = build(GATES, section["gate"], width)
        for sharer, owner in section["tie"].items():
            self._share(sharer, owner)

    def _share(self, sharer: str, owner: str) -> None:
        """Use a module at a second place, without a second name for its parameters."""
        parent, _, leaf = sharer.rpartition(".")
        place = self.get_submodule(parent)
        delattr(place, leaf)
        object.__setattr__(place, leaf, self.get_submodule(owner))

    def attentions(self, num_loops: int) -> list[CausalAttention]:
        """Return the attention layer of every slot, in order."""
        stages: list[Any] = [self.prelude, self.core, self.coda]
        once, looped, last = ([block.attention for block in stage.blocks] for stage in stages)
        return once + looped * num_loops + last * (num_loops if self.carry.reads else 1)

    def run_loops(
        self,
        vectors: Tensor,
        run: Pass,
        num_loops: int,
        sample: Tensor,
        watch: Callable[[Tensor], None] = lambda state: None,
    ) -> Tensor:
        """Return the input of the head after the last loop, ``[B, T, D]``.

        Args:
            vectors: ``[B, T, D]``, rows of the token table.
            run: What the blocks share.
            num_loops: Number of loops, >= 1.
            sample: ``[B]`` int64, key of each sequence's random first state.
            watch: Called with the first state and with the state after every loop, ``[B, T, D]``.

        Raises:
            ValueError: If the model has parameters for fewer loops.
        """
        limit = getattr(self.readout, "max_depth", None)
        if num_loops < 1 or (limit is not None and num_loops > limit):
            raise ValueError(f"num_loops must be 1 to {limit or 'any number'}, not {num_loops}")
        num_prelude, num_core = len(self.prelude.blocks), len(self.core.blocks)
        first_coda = num_prelude + num_loops * num_core

        def read(s: Tensor, k: int) -> Tensor:
            slot = first_coda + (k - 1) * len(self.coda.blocks) * self.carry.reads
            z: Tensor = self.readout(self.coda(s, run, slot), k, k == num_loops)
            return z

        e = self.prelude(self.embedding(vectors, run.positions, self.position), run, 0)
        c = s = self.start(e, run.positions, sample)
        watch(c)
        for k in range(1, num_loops + 1):
            s = self.core(self.injection(c, e), run, num_prelude + (k - 1) * num_core)
            watch(s)
            if k < num_loops:
                c = self.carry(s, partial(read, s, k))
        return read(s, num_loops)
