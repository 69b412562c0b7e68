"""Schedules draw what they declare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopkit.components.schedule import Curriculum, Fixed, LogNormal, Poisson, PoissonLogNormal, Schedule, Uniform

SCHEDULES: dict[str, Schedule] = {
    "fixed": Fixed(loops=4),
    "uniform": Uniform(min=2, max=9),
    "poisson": Poisson(mean=8),
    "poisson clipped hard": Poisson(mean=2, min=2, max=3),
    "lognormal STARS addition": LogNormal(),
    "lognormal STARS Ouro": LogNormal(mu=1.7, sigma=0.4, max=16),
    "lognormal without spread": LogNormal(mu=1.0, sigma=0.0, max=16),
    "poisson_lognormal": PoissonLogNormal(),
    "poisson_lognormal capped": PoissonLogNormal(mean=9, max=12),
    "curriculum": Curriculum(of=lambda: Poisson(mean=8)),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, 3]))


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_draws_confirm_the_declared_mean_and_bounds(schedule: Schedule) -> None:
    drawn = schedule.draw(rng(), 100_000)
    assert drawn.dtype == np.int64
    assert drawn.shape == (100_000,)
    assert drawn.mean() == pytest.approx(schedule.mean, rel=0.01)
    low, high = schedule.bounds
    assert low >= 1
    assert drawn.min() >= low
    assert drawn.max() <= high


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_bounds_hold_at_any_scale(schedule: Schedule) -> None:
    low, high = schedule.bounds
    if isinstance(schedule, Fixed):
        assert (low, high) == (4, 4)
        low = 1  # a curriculum may scale it down, and declares so itself
    for scale in (0.01, 0.3, 2.0, 1e3):
        drawn = schedule.draw(rng(), 1000, scale)
        assert drawn.min() >= low
        assert drawn.max() <= high


@pytest.mark.parametrize("schedule", [Poisson(mean=30, max=200), LogNormal(mu=3, sigma=0.3), PoissonLogNormal(mean=33)])
def test_scale_multiplies_the_mean(schedule: Schedule) -> None:
    assert schedule.draw(rng(), 100_000, 0.5).mean() == pytest.approx(schedule.mean / 2, rel=0.01)


def test_the_same_key_gives_the_same_draws() -> None:
    assert (LogNormal().draw(rng(7), 50) == LogNormal().draw(rng(7), 50)).all()
    assert (LogNormal().draw(rng(7), 50) != LogNormal().draw(rng(8), 50)).any()


@pytest.mark.parametrize("name", ["addition mu2 sigma0.7 1..100", "ouro mu1.7 sigma0.4 1..16"])
def test_lognormal_matches_stars(shared: Path, name: str) -> None:
    case = json.loads((shared / "golden/samplers/samplers.json").read_text())["lognormal_round (STARS)"]
    case = case["settings"][name]
    schedule = LogNormal(mu=case["mu"], sigma=case["sigma"], min=case["lo"], max=case["hi"])
    assert schedule.mean == pytest.approx(case["exact"]["mean"], rel=1e-9)
    legacy = np.random.RandomState(7)  # the reference's generator has the same method
    first = schedule.draw(legacy, 16)  # type: ignore[arg-type]
    assert first.tolist() == case["first_16_with_numpy_legacy_seed_7"]
    drawn = schedule.draw(rng(), 100_000)
    share = np.bincount(drawn, minlength=66)[case["lo"] :][: len(case["exact_pmf_from_lo"])] / len(drawn)
    assert np.abs(share - case["exact_pmf_from_lo"]).max() < 0.005


@pytest.mark.parametrize("name", ["mean32_backprop8", "mean8_backprop4", "mean4_backprop4"])
def test_poisson_lognormal_matches_huginn(shared: Path, name: str) -> None:
    case = json.loads((shared / "golden/samplers/samplers.json").read_text())["poisson-lognormal-filling"]
    case = case["settings"][name]
    schedule = PoissonLogNormal(mean=case["mean"] + 1, max=1000)
    assert schedule.mean == pytest.approx(case["exact"]["total"]["mean"], rel=1e-6)
    drawn = schedule.draw(rng(), 100_000)
    assert drawn.std() == pytest.approx(case["exact"]["total"]["std"], rel=0.02)
    share = np.bincount(drawn, minlength=66)[1:65] / len(drawn)
    assert np.abs(share - case["exact_pmf_total_1_to_64"]).max() < 0.005


def test_poisson_matches_parcae(shared: Path) -> None:
    case = json.loads((shared / "golden/parcae/sampler.json").read_text())["mean8_backprop4"]["exact_per_sequence"]
    assert Poisson(mean=8).mean == pytest.approx(case["total"]["mean"], rel=1e-9)
    assert Poisson(mean=8).draw(rng(), 100_000).std() == pytest.approx(case["total"]["std"], rel=0.02)


def test_curriculum_rises_from_its_start_to_the_full_mean() -> None:
    curriculum = Curriculum(of=lambda: Poisson(mean=8), start=2, ramp=0.5)
    means = [curriculum.scale(step, 100) * curriculum.mean for step in (0, 25, 50, 99)]
    assert means == pytest.approx([2, 5, 8, 8], rel=1e-3)
    by_steps = Curriculum(of=lambda: Fixed(loops=9), start=1, ramp=10, shape="one_minus_sqrt")
    assert by_steps.draw(rng(), 2, by_steps.scale(0, 100)).tolist() == [1, 1]
    assert by_steps.draw(rng(), 2, by_steps.scale(10, 100)).tolist() == [9, 9]
    assert 1 < by_steps.scale(5, 100) * 9 < 5  # below the straight line
    assert Curriculum(of=lambda: Fixed(loops=9), ramp=0.0).scale(0, 100) == 1


@pytest.mark.parametrize("build", [lambda: Uniform(min=5, max=4), lambda: LogNormal(min=0)])
def test_bounds_out_of_order_are_refused(build: object) -> None:
    with pytest.raises(ValueError, match="min"):
        build()  # type: ignore[operator]


def test_a_curriculum_declares_what_its_ramp_draws() -> None:
    ramped = Curriculum(of=lambda: Fixed(loops=4), start=2.0, ramp=10)
    assert ramped.bounds == (2, 4)
    assert [int(ramped.draw(rng(), 1, ramped.scale(step, 100))[0]) for step in (0, 5, 10)] == [2, 3, 4]
