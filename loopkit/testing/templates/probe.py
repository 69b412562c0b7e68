"""A probe. Letters: N tokens, D width."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pydantic import PositiveFloat

from loopkit.components.probe import Probe, ProbeResult, token_vectors
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("probe", "template")
class Template(Probe):
    """The share of channels that hardly count in a token's state. It rides on the sweep.

    quiet = share of channels with |s| < below * rms(s)

    Args:
        below: What hardly counts, in units of the state's root mean square, > 0.
    """

    def __init__(self, *, below: PositiveFloat = 0.1) -> None:
        self.below = below
        self.quiet: dict[int, int] = defaultdict(int)
        self.seen: dict[int, int] = defaultdict(int)

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        for depth in depths:
            s_ND = token_vectors(t.state(depth), t.batch)
            rms_N1 = s_ND.square().mean(dim=-1, keepdim=True).sqrt()
            self.quiet[depth] += int((s_ND.abs() < self.below * rms_N1).sum())
            self.seen[depth] += s_ND.numel()

    def result(self) -> ProbeResult:
        shares = {depth: self.quiet[depth] / seen for depth, seen in self.seen.items() if seen}
        return ProbeResult({"quiet_share": shares}, units={"quiet_share": "share of channels near zero, 0 to 1"})
