"""Some sequences of a pass, seen as a pass of their own. Letters: B sequences, T tokens, D width, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor

from loopkit.loop import IGNORE, Trajectory


class TrajectoryView(Trajectory):
    """The sequences of a pass that are still of interest, read without gradient; the others cost nothing.

    What was read is kept, because an exit and the answer ask for the same: gates of all loops, states, readouts and
    logits of the last two loops asked for. A narrower part takes it over.

    Args:
        whole: The pass, which may still be running.
        last: Which loop counts as the last one when loop k is read without saying so; ``None``: k itself.
        index: Which of its sequences, ``[B]`` int64; ``None``: all.
    """

    def __init__(
        self, whole: Trajectory, last: Callable[[int], int] | None = None, index: Tensor | None = None
    ) -> None:
        batch, e, noise = whole.batch, whole.e, whole.noise
        if index is not None:
            batch, e, noise = batch.rows(index), e[index], noise.rows(index)
        super().__init__(whole.model, batch, whole.loops, e=e, noise=noise)
        self.reached = whole.reached
        self.whole, self.index = whole, index
        self.last = (lambda k: k) if last is None else last
        self._known: dict[tuple[str, int, int], Tensor] = {}
        self._wider: tuple[TrajectoryView, Tensor] | None = None

    def narrow(self, kept: Tensor) -> TrajectoryView:
        """Fewer of the sequences.

        Shapes: kept: ``[B]`` bool.
        """
        rows = kept.nonzero().squeeze(1).to(self.batch.device)
        part = TrajectoryView(self.whole, self.last, rows if self.index is None else self.index[rows])
        part._wider = (self, rows)
        self._wider = None  # else every part of the run would stay in memory
        return part

    def state(self, k: int) -> Tensor:
        s, index = self.whole.state(k), self.index
        return s if index is None else self._recall("state", k, k, lambda: s[index])

    def readout(self, k: int, at: int | None = None) -> Tensor:
        at = self._at(k, at)
        return self._recall("readout", k, at, lambda: Trajectory.readout(self, k, at))

    def gate(self, k: int, at: int | None = None) -> Tensor:
        at = self._at(k, at)
        return self._recall("gate", k, at, lambda: Trajectory.gate(self, k, at))

    def logits(self, k: int, at: int | None = None) -> Tensor:
        at = self._at(k, at)
        return self._recall("logits", k, at, lambda: Trajectory.logits(self, k, at))

    def nll(self, ks: Sequence[int], at: int | Sequence[int] | None = None, weight: Tensor | None = None) -> Tensor:
        """As of any trajectory; of one loop from its logits, where they are known."""
        ats = [self._at(k, at) for k in ks] if at is None or isinstance(at, int) else list(at)
        logits = self._find("logits", ks[0], ats[0]) if len(ks) == 1 else None
        if logits is None:
            return super().nll(ks, ats, weight)
        labels = self.batch.labels
        flat = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="none")
        return flat.view(1, *labels.shape)

    def _at(self, k: int, at: int | None) -> int:
        return self.last(k) if at is None else at

    def _recall(self, what: str, k: int, at: int, compute: Callable[[], Tensor]) -> Tensor:
        """A value known here or to the wider part, or else computed; then known here."""
        for old in [key for key in self._known if key[0] != "gate" and key[1] < k - 1]:
            del self._known[old]
            self.drop(old[1])
        found = self._find(what, k, at)
        if found is None:
            found = self._known[what, k, at] = compute()
        return found

    def _find(self, what: str, k: int, at: int) -> Tensor | None:
        key = (what, k, at)
        if key not in self._known and self._wider is not None:
            wider, rows = self._wider
            if key in wider._known:
                self._known[key] = wider._known[key][rows]
        return self._known.get(key)
