"""The context of one application of a stage, which every component receives.

Dims: B sequences, T tokens, D width, S any further streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from loopkit.loop.batch import PAD
from loopkit.loop.cache import Cache
from loopkit.loop.loops import Loops
from loopkit.loop.noise import Noise

if TYPE_CHECKING:
    from loopkit.loop.trajectory import Trajectory


@dataclass(frozen=True)
class Step:
    """One application of a stage.

    Args:
        k: Loop: 0 in the prelude, ``at + 1`` in a coda that reads as if loop ``at`` were the last, else 1 to ``total``.
            A compiled block that reads it compiles once for each value.
        loops: The loops of this run.
        e: ``[B, T, D]`` prelude output (the embedding, in the prelude itself).
        c: ``[B, T, *S, D]`` state that entered this loop (in coda and gate: the state they read).
        positions: ``[B, T]`` int64; padding carries ``PAD``.
        noise: Random numbers of these tokens in this loop.
        cache: Keys and values of earlier tokens, or ``None``.
        rows: ``[B]`` int64, these sequences of the batch, if some have stopped or not started; ``None``: all.
        in_order: Index order is position order and padding comes last: without a cache a plain causal mask serves.
        records: Values that components store for regularizers and for the next loop, ``[B, ...]`` or scalars. Assign
            by key, because recomputation must not count twice.
        earlier: Records of the previous loop for the same sequences; zeros for one that starts now. Empty in loop 1.
        tokens: ``[B, T]`` int64; ``None`` outside of a pass.
        keys: ``[B, T]`` int64, a random number for each token in this loop, from which ``Dropout`` draws. It equals
            ``noise.tokens()``, made before compiled code needs it; ``None`` in evaluation.
        within: The pass, without its states; ``None`` outside of one.
        active: ``[B]`` bool, the sequences whose result is used; ``None``: all. The others have stopped or not started,
            and are computed because ranks must make the same calls or because they share a tensor.
    """

    k: int
    loops: Loops
    e: Tensor
    c: Tensor
    positions: Tensor
    noise: Noise
    cache: Cache | None = None
    rows: Tensor | None = None
    in_order: bool = True
    records: dict[str, Tensor] = field(default_factory=dict)
    earlier: Mapping[str, Tensor] = field(default_factory=dict)
    tokens: Tensor | None = None
    keys: Tensor | None = None
    within: Trajectory | None = None
    active: Tensor | None = None

    @property
    def counted(self) -> Tensor:
        """Tokens to count in a ``Tally``, ``[B, T]`` bool: those of active sequences, without padding."""
        real = self.positions < PAD
        return real if self.active is None else real & self.active[:, None]

    def gate(self, s: Tensor) -> Tensor:
        """Exit-gate logits ``[B, T]`` of any state ``[B, T, *S, D]``, such as one that the core has just computed.

        A readout that the gate reads is never that of the last loop, as for a carry.

        Raises:
            ValueError: Outside of a pass.
            UserError: If the model has no gate.
        """
        if self.within is None:
            raise ValueError("step.gate: this step belongs to no pass; build it with Trajectory.context")
        return self.within.gate_of(s, self)

    @property
    def t(self) -> float:
        """Time at which this loop starts, 0 to 1."""
        return self.loops.time(self.k - 1)

    @property
    def dt(self) -> float:
        """Time that this loop takes; 0 outside of the loop."""
        return self.loops.time(self.k) - self.t
