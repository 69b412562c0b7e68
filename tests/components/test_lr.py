"""Learning rates: where they start, peak and end."""

from __future__ import annotations

import pytest

from loopkit.components.lr import Constant, Cosine, LearningRate, Linear, WarmupStableDecay

N = 100
RATES: dict[str, LearningRate] = {
    "constant": Constant(peak=2.0),
    "constant, warm": Constant(peak=2.0, warmup=10),
    "cosine": Cosine(peak=2.0, warmup=0.1, floor=0.1),
    "linear": Linear(peak=2.0, warmup=10, floor=0.25),
    "wsd": WarmupStableDecay(peak=2.0, warmup=10, cooldown=0.2),
    "all warm-up": Cosine(peak=2.0, warmup=1.0),
}


def curve(rate: LearningRate, num_steps: int = N) -> list[float]:
    return [rate.at(step, num_steps) for step in range(num_steps)]


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_never_negative_and_peaks_at_the_peak(rate: LearningRate) -> None:
    values = curve(rate)
    assert min(values) >= 0
    assert max(values) == pytest.approx(2.0)


@pytest.mark.parametrize("rate", [*RATES.values(), WarmupStableDecay(warmup=0.9, cooldown=0.9)])
@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_short_runs_have_finite_rates(rate: LearningRate, num_steps: int) -> None:
    assert all(0 <= value <= rate.peak for value in curve(rate, num_steps))


def test_warmup_steps_equal_warmup_share() -> None:
    assert curve(Constant(peak=2.0, warmup=10)) == curve(Constant(peak=2.0, warmup=0.1))
    values = curve(Constant(peak=2.0, warmup=10))
    assert values[0] == pytest.approx(0.2)
    assert values[8] == pytest.approx(1.8)
    assert values[9:] == [2.0] * 91


def test_warmup_int_is_steps_and_float_is_share() -> None:
    assert curve(Constant(peak=2.0, warmup=1)) == [2.0] * N
    assert curve(Constant(peak=2.0, warmup=1.0))[49] == pytest.approx(1.0)


def test_cosine_decays_to_the_floor() -> None:
    values = curve(Cosine(peak=1.0, floor=0.1), 101)
    assert values[0] == 1.0
    assert values[50] == pytest.approx(0.55)
    assert values[100] == pytest.approx(0.1)
    assert values == sorted(values, reverse=True)


def test_linear_falls_by_equal_amounts() -> None:
    values = curve(Linear(peak=1.0), 11)
    assert values == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])


@pytest.mark.parametrize("shape", ["linear", "one_minus_sqrt", "cosine"])
def test_wsd_stays_at_the_peak_until_the_cooldown(shape: str) -> None:
    values = curve(WarmupStableDecay(peak=1.0, warmup=10, cooldown=20, shape=shape, floor=0.1))  # type: ignore[arg-type]
    assert values[9:80] == [1.0] * 71
    assert values[80] < 1.0
    assert values[99] == pytest.approx(0.1)
    assert values[80:] == sorted(values[80:], reverse=True)


def test_wsd_without_cooldown_is_constant() -> None:
    assert curve(WarmupStableDecay(peak=1.0, warmup=0, cooldown=0)) == [1.0] * N
