"""One forward pass of a looped model, readable at every loop.

Letters: B sequences, T tokens, D width, S any further streams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from loopkit.loop.batch import IGNORE, PAD, Batch
from loopkit.loop.cache import Cache, CodaCache
from loopkit.loop.looped_model import LoopedModelProtocol
from loopkit.loop.loops import Loops
from loopkit.loop.noise import Noise
from loopkit.loop.step import Step

_ROWS = 4096  # tokens whose logits are formed at once where no loss needs them


class Trajectory:
    """The states of a run, and what can be read from them, each computed when asked for and then kept.

    ``at`` is the loop that counts as the last one; ``None`` is ``loops.total``. So one pass answers for every depth:
    ``nll([k], at=k)`` is what a run of ``k`` loops would give, wherever ``model.depth_free`` is true.

    Attributes:
        model: The model that ran.
        loops: The loops asked for.
        batch: The tokens.
        e: ``[B, T, D]`` prelude output.
        noise: Random numbers of this pass.
        cache: Keys and values, or ``None``.
        records: What components left, one map per loop that ran; ``[b, ...]`` of the sequences computed, or scalars.
        computed: ``[b]`` int64, the sequences that each of these loops computed; ``None``: all.
        reached: Loops that ran; less than ``loops.total`` when every sequence stopped before.
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
        rerun_options: dict[str, Any] | None = None,
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
        self._rerun_options = rerun_options or {}
        self._stateless: Trajectory | None = None
        self._states: dict[int, Tensor] = {}
        self._carried: dict[int, Tensor] = {}
        self._read: dict[tuple[str, int, int], tuple[Tensor, bool]] = {}
        self._observed: set[int] = set()

    def state(self, k: int) -> Tensor:
        """``s_k``, ``[B, T, *S, D]``; ``state(0)`` is the start. A sequence that stopped earlier shows its last state.

        Raises:
            ValueError: If loop ``k`` did not run, or was not kept.
        """
        if k not in self._states:
            raise ValueError(self._absent(k))
        return self._states[k]

    def carried(self, k: int) -> Tensor:
        """``c_k``, ``[B, T, *S, D]``: what enters loop ``k + 1``; after the last loop, what would.

        Raises:
            ValueError: If loop ``k`` did not run, or was not kept.
        """
        if k not in self._carried:
            if k != self.reached:
                raise ValueError(self._absent(k))
            self._carried[k] = self.model.carry_on(self, self.state(k), k)
        return self._carried[k]

    def readout(self, k: int, at: int | None = None) -> Tensor:
        """``z_k``, ``[B, T, D]``: what the head sees."""
        at = self._last(k, at)
        return self._once("readout", k, at, lambda: self.model.read(self.state(k), k, at, within=self))

    def logits(self, k: int, at: int | None = None) -> Tensor:
        """``[B, T, V]`` fp32, also under autocast.

        Not kept: the caller holds it. Losses use ``nll``, which never holds them all.
        """
        return self.model.head(self.readout(k, at))

    def ran(self, k: int) -> Tensor | None:
        """``[B]`` bool: which sequences loop ``k`` computed, between a late start and an early stop; ``None``: all."""
        if self.depth is None:
            return None
        counts = self.loops.per_sequence
        first = 1 if counts is None else self.loops.total - counts.to(self.depth.device) + 1
        return (k >= first) & (k < first + self.depth)

    def own_loop(self, k: int) -> Tensor:
        """``[B, T]`` int64: which of its own loops loop ``k`` is for each token; 0 at padding and where it did not run.

        A sequence of fewer loops starts late, so the number is the same in whichever batch the sequence is.
        """
        counts = self.loops.per_sequence
        own_B = torch.full_like(self.batch.sample, k)
        if counts is not None:
            own_B = (own_B - self.loops.total + counts.to(own_B.device)).clamp(min=0)
        if (ran := self.ran(k)) is not None:
            own_B = own_B * ran
        return own_B[:, None].where(self.batch.positions < PAD, 0)

    def first_reading(self, k: int, s: Tensor) -> bool:
        """Whether ``s`` is ``s_k`` of this pass and is read for the first time: components observe it once."""
        if self._states.get(k) is not s or k in self._observed:
            return False
        self._observed.add(k)
        return True

    def nll(self, ks: Sequence[int], at: int | Sequence[int] | None = None, weight: Tensor | None = None) -> Tensor:
        """Negative log-likelihood of the labels, ``[len(ks), B, T]`` fp32 in nats, 0 where a token is not scored.

        Args:
            ks: Loops to read.
            at: Which loop counts as the last: one for all, or one for each of ``ks``.
            weight: As for ``score``.
        """
        if not ks:
            raise ValueError("nll: no loops to read")
        ats = [at] * len(ks) if at is None or isinstance(at, int) else list(at)
        return self.score(torch.stack([self.readout(k, a) for k, a in zip(ks, ats, strict=True)]), weight)

    def score(self, z: Tensor, weight: Tensor | None = None) -> Tensor:
        """Negative log-likelihood of the labels for any readouts, ``[..., B, T, D] -> [..., B, T]`` fp32 in nats.

        Args:
            z: What the head sees.
            weight: ``[..., B, T]``, what the gradient of each value will be, up to one factor; ``None``: the same for
                all. It saves time where it is right and changes nothing where it is wrong.
        """
        labels = self.batch.labels.expand(z.shape[:-1])
        if self.batch.num_scored == self.batch.labels.numel():
            return self.model.head(z, labels, weight)
        # scoring the unscored tokens would cost as much as scoring the others
        scored = labels != IGNORE
        values = self.model.head(z[scored], labels[scored], None if weight is None else weight[scored])
        return torch.zeros(labels.shape, dtype=values.dtype, device=z.device).masked_scatter(scored, values)

    def predict(self, k: int, at: int | None = None) -> Tensor:
        """The most likely token after each one that is scored, ``[B, T]`` int64.

        ``IGNORE``, which is no token, where nothing is scored or the logits are not finite.
        """
        scored = self.batch.scored
        found = torch.full_like(self.batch.labels, IGNORE)
        best = [self.model.head(part).max(-1) for part in self.readout(k, at)[scored].split(_ROWS)]
        tokens = [token.masked_fill(~value.isfinite(), IGNORE) for value, token in best]
        return found.masked_scatter(scored, torch.cat(tokens))

    def gate(self, k: int, at: int | None = None) -> Tensor:
        """Exit-gate logit, ``[B, T]``."""
        at = self._last(k, at)
        s = self.state(k)

        def value() -> Tensor:
            return self.model.gate(self.model.emit(s), lambda: self.readout(k, at), self.context(k, s))

        return self._once("gate", k, at, value)

    def gate_of(self, s: Tensor, step: Step) -> Tensor:
        """Exit-gate logit of any state of the step's loop, ``[B, T, *S, D]`` to ``[B, T]``; nothing is kept."""
        at = max(self.loops.total, step.k + 1)
        h = self.model.emit(s)
        return self.model.gate(h, lambda: self.model.read(s, step.k, at, within=self, rows=step.rows), step)

    def step(self, c: Tensor, k: int | None = None) -> Tensor:
        """One more application of the recurrence, ``c -> c'``: eager, math attention, differentiable twice.

        Args:
            c: ``[B, T, *S, D]``, a carried state.
            k: Which loop it is taken for; ``None``: the last one run.
        """
        k = max(self.reached, 1) if k is None else k
        with sdpa_kernel([SDPBackend.MATH]), torch.compiler.set_stance("force_eager"):
            return self.model.advance(self, c, k)

    def rerun(self, loops: Loops) -> Trajectory:
        """The same batch, noise and start with other loops, inside the same engine forward."""
        return self.model.run(self.batch, loops, **self._rerun_options)

    def context(
        self, k: int, c: Tensor, *, rows: Tensor | None = None, records: dict[str, Tensor] | None = None
    ) -> Step:
        """What the components of loop ``k`` are told.

        Random numbers belong to the loop as the sequence counts it: with loops of its own it starts the later, the more
        the deepest sequence of its micro-batch runs.
        """
        counts = self.loops.per_sequence
        idle = 0 if counts is None or k == 0 else self.loops.total - counts.to(self.batch.device)
        noise = self.noise.fold(k - idle)
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
            earlier=self._earlier(k, rows),
            tokens=tokens,
            keys=noise.tokens() if self.model.training else None,
            within=self._without_states() if k else None,
        )

    def record(self, k: int, records: dict[str, Tensor], rows: Tensor | None) -> None:
        """Remember what the components of loop ``k`` left, and which sequences it computed."""
        assert k == len(self.records) + 1
        self.records.append(records)
        self.computed.append(rows)
        self.reached = k

    def keep(self, k: int, state: Tensor, carried: Tensor | None) -> None:
        """Remember what loop ``k`` made; called by the model while it runs."""
        self._states[k] = state
        if carried is not None:
            self._carried[k] = carried

    def drop(self, k: int) -> None:
        """Drop what loop ``k`` made."""
        self._states.pop(k, None)
        self._carried.pop(k, None)
        self.drop_readouts(k)

    def drop_readouts(self, k: int) -> None:
        """Drop what was read of loop ``k``, to be computed again if asked for."""
        for key in [key for key in self._read if key[1] == k]:
            del self._read[key]

    def _without_states(self) -> Trajectory:
        """The pass as a step may hold it: what recomputes a loop in the backward pass keeps its step, and the states of
        the pass keep what recomputes them."""
        if self._stateless is None:
            # what is read inside of a loop has cache slots of its own: the same loop may be read again later
            cache = None if self.cache is None else CodaCache(self.cache, -1)
            self._stateless = Trajectory(self.model, self.batch, self.loops, e=self.e, noise=self.noise, cache=cache)
        return self._stateless

    def _earlier(self, k: int, rows: Tensor | None) -> dict[str, Tensor]:
        """What loop ``k - 1`` left, for the sequences that loop ``k`` computes."""
        if not 2 <= k <= len(self.records) + 1:
            return {}
        records, before = self.records[k - 2], self.computed[k - 2]
        if before is None and rows is None:
            return records
        count = len(self.batch) if before is None else len(before)
        if before is not None and (counts := self.loops.per_sequence) is not None:
            # a sequence may be computed before it starts, so that ranks make the same calls
            ran = counts.to(before.device)[before] > self.loops.total - (k - 1)
            records = {name: self._where_ran(value, count, ran) for name, value in records.items()}
        return {name: self._aligned(value, count, before, rows) for name, value in records.items()}

    @staticmethod
    def _where_ran(value: Tensor, count: int, ran: Tensor) -> Tensor:
        if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] != count:
            return value
        return value.where(ran.view(-1, *(1,) * (value.dim() - 1)), torch.zeros_like(value))

    def _aligned(self, value: Tensor, count: int, before: Tensor | None, rows: Tensor | None) -> Tensor:
        """The rows of a record that another set of sequences is to see; what has no rows stays as it is."""
        if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] != count:
            return value
        if before is not None:
            value = value.new_zeros(len(self.batch), *value.shape[1:]).index_copy(0, before, value)
        return value if rows is None else value[rows]

    def _last(self, k: int, at: int | None) -> int:
        at = self.loops.total if at is None else at
        if at < k:
            raise ValueError(f"loop {k} cannot be read as if loop {at} were the last: at must be at least {k}")
        return at

    def _once(self, what: str, k: int, at: int, compute: Any) -> Tensor:
        """Compute once; but a value made without gradient does not serve where one is wanted."""
        known = self._read.get((what, k, at))
        if known is None or (torch.is_grad_enabled() and not known[1]):
            known = (compute(), torch.is_grad_enabled())
            self._read[what, k, at] = known
        return known[0]

    def _absent(self, k: int) -> str:
        if 0 <= k <= self.reached:
            return f"loop {k} was not kept; pass keep= a container that holds {k}"
        return f"loop {k} did not run; this pass ran {self.reached} of {self.loops.total}"
