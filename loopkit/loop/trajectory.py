"""One forward pass of a looped model, readable at every loop.

Dims: B sequences, T tokens, D width, S any further streams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from loopkit.loop.batch import PAD, Batch
from loopkit.loop.cache import Cache, CodaCache
from loopkit.loop.looped_model import LoopedModelProtocol
from loopkit.loop.loops import Loops
from loopkit.loop.noise import Noise
from loopkit.loop.records import previous_records
from loopkit.loop.scoring import RowWeight, predict_tokens, read_active, score_labels
from loopkit.loop.step import Step


class Trajectory:
    """The states of one forward pass. Readouts, logits and gates are computed on demand and cached.

    ``at`` is the loop that counts as the last one; ``None`` is ``loops.total``. So one pass serves every depth:
    ``nll([k], at=k)`` equals that of a run of ``k`` loops if ``model.depth_free`` is true.

    Attributes:
        model: The model that computed the pass.
        loops: How many loops were requested.
        batch: The tokens.
        e: ``[B, T, D]`` prelude output.
        noise: Random numbers of this pass.
        cache: Keys and values, or ``None``.
        records: Values that components recorded, one map per loop; ``[b, ...]`` per computed sequence, or scalars.
        computed: ``[b]`` int64 per loop, the sequences that it computed; ``None``: all.
        reached: Loops that ran; less than ``loops.total`` if every sequence stopped earlier.
        depth: ``[B]`` int64, loops that each sequence ran; ``None``: all ran ``reached``.
    """

    def __init__(
        self,
        model: LoopedModelProtocol,
        batch: Batch,
        loops: Loops,
        *,
        e: Tensor,
        noise: Noise,
        cache: Cache | None = None,
        start: Tensor | None = None,
    ) -> None:
        self.model = model
        self.batch = batch
        self.loops = loops
        self.e = e
        self.noise = noise
        self.cache = cache
        self.records: list[dict[str, Tensor]] = []
        self.computed: list[Tensor | None] = []
        self.reached = 0
        self.depth: Tensor | None = None
        self._start = start
        self._stateless: Trajectory | None = None
        self._states: dict[int, Tensor] = {}
        self._carried: dict[int, Tensor] = {}
        self._read: dict[tuple[str, int, int], tuple[Tensor, bool]] = {}
        self._observed: set[int] = set()

    def state(self, k: int) -> Tensor:
        """``s_k``, ``[B, T, *S, D]``; ``state(0)`` is the start. A sequence that stopped keeps its last state.

        Raises:
            ValueError: If loop ``k`` did not run, or was not kept.
        """
        if k not in self._states:
            if 0 <= k <= self.reached:
                raise ValueError(f"loop {k} was not kept; pass keep= a container that holds {k}")
            raise ValueError(f"loop {k} did not run; this pass ran {self.reached} of {self.loops.total}")
        return self._states[k]

    def carried(self, k: int) -> Tensor:
        """``c_k``, ``[B, T, *S, D]``: the input of loop ``k + 1``, also after the last loop; raises as ``state``."""
        if k not in self._carried:
            s = self.state(k)
            self._carried[k] = self.carry(s, k, entering=s, active=self.active(k))
        return self._carried[k]

    def readout(self, k: int, at: int | None = None) -> Tensor:
        """``z_k``, ``[B, T, D]``: the input of the head."""
        at = self._last(k, at)
        return self._cached("readout", k, at, lambda: self.read(self.state(k), k, at))

    def read(
        self, s: Tensor, k: int, at: int, *, dtype: torch.dtype | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """``z_k`` of any state, ``[B, T, D]``: coda, then readout, as if loop ``at`` were the last; not cached.

        Args:
            s: ``[B, T, *S, D]``.
            k: The loop that the state belongs to.
            at: The loop that counts as the last, >= k.
            dtype: Compute in this precision; ``head`` follows that of ``z``. ``None``: as the model does.
            rows: ``[b]`` int64, which sequences of the pass these are; ``None``: all.
        """
        step = self.context(at + 1, s, rows=rows)
        loops = self.loops if at == self.loops.total else Loops.fixed(at)
        step = replace(step, loops=loops, cache=None if self.cache is None else CodaCache(self.cache, k))
        own_loop = self.own_loop(k) if self.model.training and self._is_first_reading(k, s) else None
        return self.model.read(s, k, step, dtype, own_loop)

    def logits(self, k: int, at: int | None = None) -> Tensor:
        """``[B, T, V]`` fp32, also under autocast; not cached. Losses use ``nll``, which never holds all of them."""
        return self.model.head(self.readout(k, at))

    def active(self, k: int) -> Tensor | None:
        """``[B]`` bool: the sequences that had started and not stopped in loop ``k``; ``None``: all."""
        if self.depth is None:
            return None
        counts = self.loops.per_sequence
        first = 1 if counts is None else self.loops.total - counts.to(self.depth.device) + 1
        return (k >= first) & (k < first + self.depth)

    def own_loop(self, k: int) -> Tensor:
        """``[B, T]`` int64: loop ``k`` counted from each sequence's first loop; 0 at padding and where not active."""
        own_B = torch.zeros_like(self.batch.sample) + self._own(k)
        if (active_B := self.active(k)) is not None:
            own_B = own_B * active_B
        return own_B[:, None].where(self.batch.positions < PAD, 0)

    def _is_first_reading(self, k: int, s: Tensor) -> bool:
        """Check whether ``s`` is ``s_k`` of this pass and is read for the first time: a readout observes it once."""
        if self._states.get(k) is not s or k in self._observed:
            return False
        self._observed.add(k)
        return True

    def nll(self, ks: Sequence[int], at: int | Sequence[int] | None = None, weight: RowWeight = None) -> Tensor:
        """Negative log-likelihood of the labels, ``[len(ks), B, T]`` fp32 in nats, 0 where a token is not scored.

        Args:
            ks: Loops to read.
            at: The loop that counts as the last: one for all, or one for each of ``ks``.
            weight: As for ``score``.
        """
        if not ks:
            raise ValueError("nll: no loops to read")
        ats = [at] * len(ks) if at is None or isinstance(at, int) else list(at)
        return self.score(torch.stack([self.readout(k, a) for k, a in zip(ks, ats, strict=True)]), weight)

    def score(self, z: Tensor, weight: RowWeight = None) -> Tensor:
        """Negative log-likelihood of the labels for any readouts, ``[..., B, T, D] -> [..., B, T]`` fp32 in nats.

        Args:
            z: Readouts, the inputs of the head.
            weight: The gradient that each value will receive, up to one factor, which saves a quarter of the head's
                products. A wrong one is an error on the CPU and gives NaN elsewhere.
        """
        return score_labels(self.model.head, z, self.batch, weight)

    def predict(self, k: int, at: int | None = None) -> Tensor:
        """Return the most likely next token at each scored position, ``[B, T]`` int64.

        ``IGNORE`` at positions that are not scored or whose logits are not finite.
        """
        return predict_tokens(self.model.head, self.readout(k, at), self.batch)

    def gate(self, k: int, at: int | None = None) -> Tensor:
        """Exit-gate logit, ``[B, T]``."""
        at, s, model = self._last(k, at), self.state(k), self.model
        read = partial(self.readout, k, at)
        return self._cached("gate", k, at, lambda: model.gate(model.emit(s), read, self.context(k, s)))

    def gate_of(self, s: Tensor, step: Step) -> Tensor:
        """Exit-gate logit of any state of the step's loop, ``[B, T, *S, D]`` to ``[B, T]``; not cached."""
        at = max(self.loops.total, step.k + 1)
        h = self.model.emit(s)
        return self.model.gate(h, lambda: self.read(s, step.k, at, rows=step.rows), step)

    def carry(self, s: Tensor, k: int, *, entering: Tensor, active: Tensor | None = None) -> Tensor:
        """``c_k`` of ``s_k``; a readout that the carry reads is never that of the last loop.

        Args:
            s: ``[B, T, *S, D]``, the state after loop ``k``.
            k: The loop.
            entering: The state that entered the loop.
            active: ``[B]`` bool, the sequences whose result is used; ``None``: all.
        """
        at = max(self.loops.total, k + 1)
        read = partial(self.readout, k, at)
        if self.cache is not None and active is not None:
            read = partial(read_active, self, s, k, at, active)
        return self.model.carry(s, read, self.context(k, entering, active=active))

    def step(self, c: Tensor, k: int | None = None) -> Tensor:
        """Apply injection, core and carry to a carried state, ``c_k -> c_{k+1}``, twice differentiable.

        Args:
            c: ``[B, T, *S, D]``, a carried state.
            k: Loop whose number, time and random numbers it uses; ``None``: the last loop of the pass.
        """
        k = max(self.reached, 1) if k is None else k
        with sdpa_kernel([SDPBackend.MATH]), torch.compiler.set_stance("force_eager"):
            step = replace(self.context(k, c), cache=None)
            s = self.model.core(self.model.injection(c, step.e, step), step)
            return self.model.carry(s, lambda: self.read(s, k, max(self.loops.total, k + 1)), step)

    def rerun(self, loops: Loops) -> Trajectory:
        """Run the same batch, noise and start with other loops, inside the same engine forward."""
        return self.model.run(self.batch, loops, start=self._start, noise_key=(self.noise.seed, self.noise.step))

    def context(
        self,
        k: int,
        c: Tensor,
        *,
        rows: Tensor | None = None,
        records: dict[str, Tensor] | None = None,
        active: Tensor | None = None,
    ) -> Step:
        """Build the ``Step`` of loop ``k``."""
        noise = self.loop_noise(k)
        positions, tokens, e = self.batch.positions, self.batch.tokens, self.e
        if rows is not None:
            noise, positions, tokens, e = noise.rows(rows), positions[rows], tokens[rows], e[rows]
        return Step(
            k=k,
            loops=self.loops,
            e=e,
            c=c,
            positions=positions,
            noise=noise,
            cache=self.cache,
            rows=rows,
            in_order=bool(self.batch.in_order),
            records={} if records is None else records,
            earlier=previous_records(self.records, self.computed, self.loops, len(self.batch), k, rows),
            tokens=tokens,
            keys=noise.tokens() if self.model.training else None,
            within=self._without_states() if k else None,
            active=active,
        )

    def loop_noise(self, k: int) -> Noise:
        """Random numbers of loop ``k``, keyed by each sequence's own count of loops, so that no batch changes them."""
        return self.noise.fold(self._own(k))

    def _own(self, k: int) -> int | Tensor:
        own = self.loops.own(k)
        return own.to(self.batch.device) if isinstance(own, Tensor) else own

    def record(self, k: int, records: dict[str, Tensor], rows: Tensor | None) -> None:
        """Store the records of loop ``k`` and the sequences that it computed."""
        assert k == len(self.records) + 1
        self.records.append(records)
        self.computed.append(rows)
        self.reached = k

    def keep(self, k: int, state: Tensor, carried: Tensor | None) -> None:
        """Store the states of loop ``k``; the model calls this while it runs."""
        self._states[k] = state
        if carried is not None:
            self._carried[k] = carried

    def drop(self, k: int) -> None:
        """Drop the states and readouts of loop ``k``."""
        self._states.pop(k, None)
        self._carried.pop(k, None)
        self.drop_readouts(k)

    def drop_readouts(self, k: int) -> None:
        """Drop the cached readouts and gates of loop ``k``."""
        self._read = {key: value for key, value in self._read.items() if key[1] != k}

    def _without_states(self) -> Trajectory:
        """Return the pass without its states, for a step to reference: activation checkpointing references the step,
        and the states reference the checkpoint, so a step with the states would be part of a reference cycle."""
        if self._stateless is None:
            # a read inside a loop has its own cache slots, because the same loop may be read again later
            cache = None if self.cache is None else CodaCache(self.cache, -1)
            self._stateless = Trajectory(self.model, self.batch, self.loops, e=self.e, noise=self.noise, cache=cache)
        return self._stateless

    def _last(self, k: int, at: int | None) -> int:
        at = self.loops.total if at is None else at
        if at < k:
            raise ValueError(f"loop {k} cannot be read as if loop {at} were the last: at must be at least {k}")
        return at

    def _cached(self, name: str, k: int, at: int, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a value once, and again if it was computed without gradient and gradients are enabled now."""
        entry = self._read.get((name, k, at))
        if entry is None or (torch.is_grad_enabled() and not entry[1]):
            entry = self._read[name, k, at] = (compute(), torch.is_grad_enabled())
        return entry[0]
