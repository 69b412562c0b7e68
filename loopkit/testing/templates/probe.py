"""A probe. Dims: N tokens, D width."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pydantic import PositiveFloat

from loopkit.components.probe import Probe, ProbeResult, token_vectors
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("probe", "template")
class Template(Probe):
    """Measure the share of small channels in the state, during the sweep over depths.

    quiet_share = share of channels with |s| < below * rms(s)

    Args:
        below: Threshold of a small channel, in units of the root mean square of the state, > 0.
    """

    def __init__(self, *, below: PositiveFloat = 0.1) -> None:
        self.below = below
        self.quiet: dict[int, int] = defaultdict(int)
        self.total: dict[int, int] = defaultdict(int)

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        for depth in depths:
            s_ND = token_vectors(t.state(depth), t.batch)
            rms_N1 = s_ND.square().mean(dim=-1, keepdim=True).sqrt()
            self.quiet[depth] += int((s_ND.abs() < self.below * rms_N1).sum())
            self.total[depth] += s_ND.numel()

    def result(self) -> ProbeResult:
        shares = {depth: self.quiet[depth] / total for depth, total in self.total.items() if total}
        return ProbeResult({"quiet_share": shares}, units={"quiet_share": "share of channels near zero, 0 to 1"})
