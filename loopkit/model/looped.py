"""The looped language model.

Dims: B sequences, T tokens, D width, S any further streams, V vocabulary.

    x    = embedding(tokens)
    e    = prelude(x)
    c_0  = start(e)
    for k in 1..K:
        s_k = core(injection(c_{k-1}, e))
        c_k = carry(s_k)
    on demand:  z_k = readout(coda(core.emit(s_k))),  logits_k = head(z_k)
"""

from __future__ import annotations

from collections.abc import Callable, Container

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from loopkit.components.core import Core
from loopkit.components.gate import Gate
from loopkit.errors import UserError
from loopkit.loop import EVERY, Batch, Cache, Loops, Noise, Step, Trajectory
from loopkit.model.embedding import Embedding
from loopkit.model.head import Head
from loopkit.model.parts import Parts
from loopkit.model.precision import call_in
from loopkit.model.rows import Rows
from loopkit.model.tie import tie
from loopkit.plural import plural
from loopkit.recipe.format import ModelConfig


class LoopedModel(nn.Module):
    """A looped language model, assembled from a recipe's ``model`` section.

    Args:
        model: The section.
        vocabulary: Number of tokens.
        max_length: Longest sequence, in tokens.
        max_loops: Most loops in training, >= 1.

    Attributes:
        max_depth: Most loops it can run, where a component has parameters per loop; else ``None``.
        depth_free: Whether nothing inside the loop depends on the number of loops run: then one pass serves all depths.
        checkpointing: Whether each loop is recomputed in the backward pass instead of kept.
        stops: Whether the gate may end a sequence's loops in training.

    Raises:
        ValueError: If parts do not fit together; a note names the part.
    """

    def __init__(self, model: ModelConfig, *, vocabulary: int, max_length: int, max_loops: int) -> None:
        super().__init__()
        self.section = model
        self.vocabulary, self.width = vocabulary, model.width
        self.max_length, self.max_loops = max_length, max_loops
        self.checkpointing = False
        width = model.width
        parts = Parts(width=width, max_length=max_length, max_loops=max_loops, vocabulary=vocabulary)
        looped = {"width": width, "max_loops": max_loops}
        scale, dropout = model.embedding.scale, model.embedding.dropout
        self.embedding = Embedding(vocabulary, width, scale=scale, dropout=dropout)
        self.position = parts.build("model.position", model.position, width=width, max_length=max_length)
        self.prelude = parts.prelude(model.prelude, model.block, self.position)
        before = parts.layers
        core = parts.core(model.core, model.block, self.position)
        self.core_layers = parts.layers - before
        parts.check_streams(core, {"start": model.start, "injection": model.injection, "carry": model.carry})
        self.start = parts.build("model.start", model.start, width=width, streams=core.streams)
        self.injection = parts.build("model.injection", model.injection, streams=core.streams, **looped)
        self.core: Core = core  # after start and injection, because weights are drawn in the order of the parts
        self.carry = parts.build("model.carry", model.carry, **looped)
        self.coda = parts.coda(model.coda, model.block, self.position)
        self.readout = parts.build("model.readout", model.readout, **looped)
        self.gate: Gate = parts.build("model.gate", model.gate, width=width)
        self.stops = getattr(type(self.gate), "stop", Gate.stop) is not Gate.stop
        self.layers = parts.layers
        self.head = Head(width, vocabulary, bias=model.head.bias)
        self.ties = dict(model.tie) | ({"head.weight": "embedding.tokens.weight"} if model.head.tied else {})
        tie(self, self.ties)
        limits = [limit for part in self.modules() if (limit := getattr(part, "max_depth", None)) is not None]
        self.max_depth: int | None = min(limits, default=None)
        self.depth_free = not any(_has_trait(part, "uses_total") for part in self.modules())
        self.reads_last_differently = any(_has_trait(part, "uses_at") for part in self.modules())

    def run(
        self,
        batch: Batch,
        loops: Loops,
        *,
        start: Tensor | None = None,
        intervene: Callable[[Tensor, int], Tensor] | None = None,
        keep: Container[int] = EVERY,
        after_loop: Callable[[Trajectory, int], Tensor | None] | None = None,
        noise_key: tuple[int, int] = (0, 0),
        cache: Cache | None = None,
    ) -> Trajectory:
        """Return one forward pass, readable at every loop.

        Args:
            batch: The tokens.
            loops: How often the core runs, and through how much of that gradients go.
            start: ``[B, T, *S, D]``, the state before the first loop; ``None``: the model's own.
            intervene: ``intervene(s_k, k)`` replaces each state before readout and carry use it.
            keep: Loops whose state is kept; that of the last loop always is.
            after_loop: Called as ``after_loop(trajectory, k)`` after each loop. It returns ``[B]`` bool, true for the
                sequences that stop there and are not computed further, or ``None`` if no sequence stops.
            noise_key: (seed, optimizer step) of the random numbers.
            cache: Keys and values of earlier tokens; the batch then contains only the new tokens.

        Raises:
            ValueError: If the loops exceed ``max_depth`` or do not fit the batch.
        """
        if self.max_depth is not None and loops.total > self.max_depth:
            raise UserError(
                f"this model has parameters for {plural(self.max_depth, 'loop')} and cannot run {loops.total}"
            )
        stopping = self.training and self.stops
        if stopping and loops.backprop < loops.total:
            raise UserError(
                f"train.backprop: model.gate may end a sequence in any of {loops.total} loops, and only the last "
                f"{loops.backprop} carry gradient; set train.backprop to all"
            )
        rows = Rows(loops, len(batch), batch.device)
        noise = Noise(*noise_key, sample=batch.sample, positions=batch.positions)
        x = self.embedding(batch.tokens, batch.positions, self.position, noise)
        t = Trajectory(self, batch, loops, e=x, noise=noise, cache=cache, start=start)
        t.e = self.prelude(x, t.context(0, x))
        c = c_0 = self.start(t.e, t.context(0, t.e)) if start is None else start
        t.keep(0, c_0, c_0)
        s = c
        for k in range(1, loops.total + 1):
            with torch.set_grad_enabled(torch.is_grad_enabled() and k > loops.total - loops.backprop):
                s = self._loop(t, k, s, c, rows, intervene)
                stopped = None if after_loop is None else after_loop(t, k)
                if stopped is not None and rows.finish(stopped, k):
                    break
                if k < loops.total:
                    if stopping and (ended := self.gate.stop(t, k)) is not None:
                        # later loops still call the core, because every rank must make the same calls
                        rows.finish(ended, k)
                    c = rows.merge(c, t.carry(s, k, entering=c, active=rows.mask(k)), k)
            if k == loops.total - loops.backprop:
                c = rows.restore(c, c_0, k)
            if k < loops.total:
                t.keep(k, s, c)
            if k - 1 not in keep:
                t.drop(k - 1)
        t.depth = rows.depth(t.reached)
        return t

    forward = run

    def _loop(
        self,
        t: Trajectory,
        k: int,
        s: Tensor,
        c: Tensor,
        rows: Rows,
        intervene: Callable[[Tensor, int], Tensor] | None,
    ) -> Tensor:
        """``s_k`` of all sequences, of which only some may be computed."""
        records: dict[str, Tensor] = {}
        index = rows.at(k)
        entering = c if index is None else c[index]
        mask = rows.mask(k)
        active = mask if mask is None or index is None else mask[index]
        step = t.context(k, entering, rows=index, records=records, active=active)
        new = self._inject_and_core(entering, step)
        if index is not None:
            new = rows.merge(s, s.index_copy(0, index, new), k)
        if intervene is not None:
            new = rows.merge(new, intervene(new, k), k)
        t.record(k, records, index)
        t.keep(k, new, None)
        return new

    def _inject_and_core(self, c: Tensor, step: Step) -> Tensor:
        """Apply injection and core; recompute them in the backward pass if ``checkpointing`` is set."""

        def body(c: Tensor) -> Tensor:
            s: Tensor = self.core(self.injection(c, step.e, step), step)
            return s

        if self.checkpointing and torch.is_grad_enabled() and step.cache is None:
            s: Tensor = checkpoint(body, c, use_reentrant=False)
            return s
        return body(c)

    def emit(self, s: Tensor) -> Tensor:
        """Return what coda and readout see of a state, ``[B, T, *S, D]`` to ``[B, T, D]``."""
        return self.core.emit(s)

    def read(
        self,
        s: Tensor,
        k: int,
        step: Step,
        dtype: torch.dtype | None = None,
        own_loop: Tensor | None = None,
    ) -> Tensor:
        """``z_k``, ``[B, T, D]``: coda, then readout. ``Trajectory.read`` calls this with the step of its pass.

        Args:
            s: ``[B, T, *S, D]``.
            k: The loop that the state belongs to.
            step: Of the coda: its ``loops.total`` is the loop that counts as the last.
            dtype: Compute in this precision; ``head`` follows that of ``z``. ``None``: as the model does.
            own_loop: ``[B, T]`` int64, the number of each token's loop, for a readout that observes the state in
                training; ``None``: the readout does not observe it.
        """
        if dtype is not None:
            parts: dict[str, nn.Module] = {"coda": self.coda, "readout": self.readout, "position": self.position}
            if type(self.core).emit is not Core.emit:
                parts["core"] = self.core
            return call_in(dtype, parts, lambda: self.read(s.to(dtype), k, step, own_loop=own_loop))
        h = self.coda(self.emit(s), step)
        if own_loop is not None:
            self.readout.observe(h, own_loop)
        z: Tensor = self.readout(h, k, step.loops.total)
        return z

    def compile_blocks(self, backend: str = "inductor") -> None:
        """Compile every block, not the loop: a new number of loops then costs no recompilation. Names stay the same.

        Args:
            backend: Of ``torch.compile``; ``inductor`` needs a C++ compiler, or Triton on a GPU.
        """
        for stage in (self.prelude, self.core, self.coda):
            for block in getattr(stage, "blocks", ()):
                block.compile(backend=backend)


def _has_trait(part: nn.Module, trait: str) -> bool:
    registration = getattr(type(part), "registration", None)
    return registration is not None and bool(registration.traits.get(trait, False))
