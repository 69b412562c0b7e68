"""A view of some sequences of a pass, which behaves like a pass of only these.

Dims: B sequences, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor

from loopkit.loop import IGNORE, Trajectory
from loopkit.loop.scoring import RowWeight


class TrajectoryView(Trajectory):
    """The remaining sequences of a pass, read without gradient; the others cost nothing.

    Values are cached, because an exit and its answer read the same ones: gates of all loops; states, readouts and
    logits of the last two loops that were read. A narrower view inherits them.

    Args:
        source: The pass, which may still be running.
        last: The loop that counts as the last when loop k is read without ``at``; ``None``: k itself.
        index: Indices of the sequences, ``[B]`` int64; ``None``: all.
    """

    def __init__(
        self, source: Trajectory, last: Callable[[int], int] | None = None, index: Tensor | None = None
    ) -> None:
        batch, e, noise = source.batch, source.e, source.noise
        if index is not None:
            batch, e, noise = batch.rows(index), e[index], noise.rows(index)
        super().__init__(source.model, batch, source.loops, e=e, noise=noise)
        self.reached = source.reached
        self.source, self.index = source, index
        self.last = (lambda k: k) if last is None else last
        self._values: dict[tuple[str, int, int], Tensor] = {}
        self._wider: tuple[TrajectoryView, Tensor] | None = None

    def narrow(self, mask: Tensor) -> TrajectoryView:
        """Return a view of the sequences for which a mask is true.

        Shapes: mask: ``[B]`` bool.
        """
        rows = mask.nonzero().squeeze(1).to(self.batch.device)
        view = TrajectoryView(self.source, self.last, rows if self.index is None else self.index[rows])
        view._wider = (self, rows)
        self._wider = None  # else every earlier view would stay in memory
        return view

    def state(self, k: int) -> Tensor:
        s, index = self.source.state(k), self.index
        return s if index is None else self._cached("state", k, k, lambda: s[index])

    def readout(self, k: int, at: int | None = None) -> Tensor:
        at = self._last(k, self._at(k, at))
        # read by the pass, whose cache has the rows of all sequences
        return self._cached("readout", k, at, lambda: self.source.read(self.state(k), k, at, rows=self.index))

    def gate(self, k: int, at: int | None = None) -> Tensor:
        at = self._at(k, at)
        return self._cached("gate", k, at, lambda: Trajectory.gate(self, k, at))

    def logits(self, k: int, at: int | None = None) -> Tensor:
        at = self._at(k, at)
        return self._cached("logits", k, at, lambda: Trajectory.logits(self, k, at))

    def nll(self, ks: Sequence[int], at: int | Sequence[int] | None = None, weight: RowWeight = None) -> Tensor:
        """As for any trajectory; for one loop, from its cached logits if there are any."""
        ats = [self._at(k, at) for k in ks] if at is None or isinstance(at, int) else list(at)
        logits = self._find("logits", ks[0], ats[0]) if len(ks) == 1 else None
        if logits is None:
            return super().nll(ks, ats, weight)
        labels = self.batch.labels
        flat = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="none")
        return flat.view(1, *labels.shape)

    def _at(self, k: int, at: int | None) -> int:
        return self.last(k) if at is None else at

    def _cached(self, what: str, k: int, at: int, compute: Callable[[], Tensor]) -> Tensor:
        """Return a value from the cache of this or the wider view, or compute and cache it."""
        for old in [key for key in self._values if key[0] != "gate" and key[1] < k - 1]:
            del self._values[old]
            self.drop(old[1])
        value = self._find(what, k, at)
        if value is None:
            value = self._values[what, k, at] = compute()
        return value

    def _find(self, what: str, k: int, at: int) -> Tensor | None:
        key = (what, k, at)
        if key not in self._values and self._wider is not None:
            wider, rows = self._wider
            if key in wider._values:
                self._values[key] = wider._values[key][rows]
        return self._values.get(key)
