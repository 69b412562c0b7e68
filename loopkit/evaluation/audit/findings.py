"""Findings of an audit, and the verdicts that follow from them. No torch.

The thresholds are reasoned, not fitted; the guide *Reading an audit* gives the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SEEN = 1e-3
"""Minimum radial fraction at which a loss depends on the scale. A random direction in 512 channels has 0.035."""

FORCE = 1e-3
"""Minimum slope that counts as a pull, in nats per unit of log scale."""

POWER = 0.5
"""Minimum power at which a loop preserves scale, half-way between removed (0) and preserved (1)."""

LARGE = 100
"""Multiple of the state at which a pull must reach ``FORCE``; beyond it, the pull must not saturate."""


@dataclass(frozen=True)
class View:
    """One supervised readout.

    Args:
        loop: The loop that is read.
        fraction: Share of the cross-entropy's gradient along the state, 0 to 1, by multiple of the state.
        slope: Change of the cross-entropy per unit of log scale, nats, by multiple of the state.
    """

    loop: int
    fraction: Mapping[int, float]
    slope: Mapping[int, float]

    @property
    def sees(self) -> bool:
        """Whether the loss depends on the scale at every multiple."""
        return min(self.fraction.values()) >= SEEN


@dataclass(frozen=True)
class Pull:
    """Dependence of a term of the objective on the scale of all states.

    Args:
        name: ``supervision`` or ``regularizer NAME``.
        weight: Its coefficient, which the slopes include.
        slope: Change per unit of log scale, nats, by multiple of the state; the last multiple is far beyond the others.
    """

    name: str
    weight: float
    slope: Mapping[int, float]

    @property
    def holds(self) -> bool:
        """Whether it reduces the scale of a large state.

        The slope at 100 times the state is at least ``FORCE``, and the slope far beyond is at least half of the largest
        one before: a term that saturates, such as a gate's, exerts no force on a state that has drifted.
        """
        *near, far = [self.slope[scale] for scale in sorted(self.slope)]
        return self.slope[LARGE] >= FORCE and far >= max(map(abs, near)) / 2


@dataclass(frozen=True)
class Motion:
    """Effect of one loop on the state's scale; RMS units are those of the state's channels.

    Args:
        state_rms: RMS of the state before the loop.
        power: Exponent p of RMS out ~ (RMS in)^p, between 10 and 100 times the state.
        power_of_carry: The same for only the carry.
        kept: Share of a change in scale that remains after the loop, over the same range.
        radial: Update of the loop along the state, RMS, by multiple of the state.
        angular: Update across the state, RMS, by multiple of the state.
        turn: Change of the state's direction, 0 to 2, by multiple of the state.
        lemma_2: Over many loops, the mean growth of each and the radial update that should equal it, RMS.
    """

    state_rms: float
    power: float
    power_of_carry: float
    kept: float
    radial: Mapping[int, float]
    angular: Mapping[int, float]
    turn: Mapping[int, float]
    lemma_2: Mapping[str, float] | None = None

    @property
    def keeps(self) -> bool:
        """Whether the loop preserves scale.

        A constant factor, however small, is not a bound: it is learned, and a loss that is invariant to the scale does
        not constrain it.
        """
        return self.power >= POWER


@dataclass(frozen=True)
class ScaleFinding:
    """The first verdict and its figures.

    Args:
        views: The supervised readouts with a gradient to the state.
        pulls: The total supervised loss, and every regularizer.
        motion: The recurrence; ``None`` if there is only one loop.
    """

    views: list[View]
    pulls: list[Pull]
    motion: Motion | None

    @property
    def visible(self) -> bool:
        """Whether any supervised readout depends on the scale."""
        return any(view.sees for view in self.views)

    @property
    def active(self) -> bool:
        """Whether the recurrence preserves scale."""
        return self.motion is not None and self.motion.keeps

    @property
    def held_by(self) -> list[str]:
        """Terms of the objective that reduce the scale of a large state."""
        return [pull.name for pull in self.pulls if pull.holds]

    @property
    def verdict(self) -> Literal["controlled", "blind spot"]:
        """``blind spot``: the loop preserves scale, no supervised readout depends on it, and no term reduces it."""
        return "blind spot" if self.active and not self.visible and not self.held_by else "controlled"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict and every figure."""
        return {
            "verdict": self.verdict,
            "visible": self.visible,
            "active": self.active,
            "held_by": self.held_by,
            "readouts": [asdict(view) | {"sees": view.sees} for view in self.views],
            "terms": [asdict(pull) | {"holds": pull.holds} for pull in self.pulls],
            "recurrence": None if self.motion is None else asdict(self.motion),
        }


@dataclass(frozen=True)
class SpectralRadiusFinding:
    """The spectral radius of one loop at one depth.

    Args:
        depth: Loops before the measured one.
        mean: Over sequences.
        max: Over sequences.
        residual: Largest relative change from the third to the last quarter of the power method's steps.
    """

    depth: int
    mean: float
    max: float
    residual: float = 0.0


@dataclass(frozen=True)
class Settling:
    """How the state moves over many loops.

    Args:
        kind: ``settling``: the distance between successive states shrinks exponentially, so there is a fixed point.
            ``marginal``: it shrinks more slowly or not at all, and the norm stays bounded, as in a cycle. ``drifting``:
            the norm grows without bound.
        loops: Loops that were run.
        rate: Factor per loop of an exponential fitted to the distances, below 1 if they shrink; None if the state is at
            rest or not finite.
        power: Exponent of a power law k^power fitted to the distances; None as for ``rate``.
        growth: Exponent of a power law fitted to the norm; None if the state is not finite.
    """

    kind: Literal["settling", "marginal", "drifting"]
    loops: int
    rate: float | None = None
    power: float | None = None
    growth: float | None = None


@dataclass(frozen=True)
class Recurrence:
    """The second verdict and its figures.

    Args:
        radii: One for each depth; empty before training.
        settling: Path of the state over many loops; None before training, or if the model runs too few loops.
    """

    radii: list[SpectralRadiusFinding] = field(default_factory=list)
    settling: Settling | None = None

    @property
    def verdict(self) -> Literal["stable", "unstable", "unknown until trained"]:
        """``stable``: at no measured depth does one more loop amplify small changes."""
        if not self.radii:
            return "unknown until trained"
        return "stable" if all(radius.max <= 1 for radius in self.radii) else "unstable"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict and every figure."""
        record: dict[str, Any] = {"verdict": self.verdict}
        if self.radii:
            record["spectral_radius"] = [asdict(radius) for radius in self.radii]
        if self.settling is not None:
            record["settling"] = asdict(self.settling)
        return record


@dataclass(frozen=True)
class Audit:
    """Both verdicts.

    Args:
        subject: Name of the recipe or run.
        measured_on: Description of model and data.
        scale: The first verdict.
        recurrence: The second verdict.
        remedies: Recipe key to choices, each of which ends the blind spot according to a measurement.
        notes: Remarks for the reader.
        reads_input: Whether the logits depend on the tokens.
    """

    subject: str
    measured_on: str
    scale: ScaleFinding
    recurrence: Recurrence
    remedies: Mapping[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reads_input: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return all findings as plain values."""
        return {
            "subject": self.subject,
            "measured_on": self.measured_on,
            "scale": self.scale.to_json(),
            "recurrence": self.recurrence.to_json(),
            "remedies": dict(self.remedies),
            "notes": list(self.notes),
            "reads_input": self.reads_input,
        }
