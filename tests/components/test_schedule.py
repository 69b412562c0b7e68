"""Schedules draw what they declare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopkit.components.schedule import (
    Fixed,
    LogNormal,
    Poisson,
    PoissonLogNormal,
    Schedule,
    Uniform,
)
from loopkit.components.schedule.curriculum import Curriculum, PoissonCurriculum
from loopkit.data.batch_sizes import BatchSizes
from loopkit.training.step.loop_sampling import LoopDraw, LoopSampler

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
    "poisson_lognormal as Huginn counts": PoissonLogNormal(mean=32, mean_of="rate"),
    "curriculum": Curriculum(of=lambda: Poisson(mean=8)),
    "poisson_curriculum": PoissonCurriculum(mean=8),
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
def test_lognormal_matches_stars(golden_dir: Path, name: str) -> None:
    case = json.loads((golden_dir / "samplers/samplers.json").read_text())["lognormal_round (STARS)"]
    case = case["settings"][name]
    schedule = LogNormal(mu=case["mu"], sigma=case["sigma"], min=case["lo"], max=case["hi"])
    assert schedule.mean == pytest.approx(case["exact"]["mean"], rel=1e-9)
    legacy = np.random.RandomState(7)  # the reference's generator has the same method
    first = schedule.draw(legacy, 16)  # type: ignore[arg-type]
    assert first.tolist() == case["first_16_with_numpy_legacy_seed_7"]
    drawn = schedule.draw(rng(), 100_000)
    share = np.bincount(drawn, minlength=66)[case["lo"] :][: len(case["exact_pmf_from_lo"])] / len(drawn)
    assert np.abs(share - case["exact_pmf_from_lo"]).max() < 0.005


HUGINN = ["mean32_backprop8", "mean8_backprop4", "mean4_backprop4"]
PARCAE = ["mean8_backprop4", "mean32_backprop8"]


def check_exact(drawn: np.ndarray, exact: dict) -> None:
    """Draws against exact figures, within four standard errors of what such a sample shows."""
    count = len(drawn)
    assert drawn.mean() == pytest.approx(exact["mean"], abs=4 * exact["std"] / count**0.5 + 1e-9)
    kurtosis = ((drawn - drawn.mean()) ** 4).mean() / max(drawn.var() ** 2, 1e-12)
    spread = 0.0 if exact["std"] == 0 else 4 * ((max(kurtosis, 1.0) - 1) / 4 / count) ** 0.5
    assert drawn.std() == pytest.approx(exact["std"], rel=spread + 1e-9, abs=1e-3)
    for level, value in exact["quantiles"].items():
        # the smallest value whose cumulative probability reaches the level
        error = 4 * (float(level) * (1 - float(level)) / count) ** 0.5
        assert (drawn <= value).mean() >= float(level) - error, level
        assert (drawn < value).mean() < float(level) + error, level


@pytest.mark.parametrize("name", HUGINN)
def test_poisson_lognormal_reproduces_huginn(golden_dir: Path, name: str) -> None:
    case = json.loads((golden_dir / "samplers/samplers.json").read_text())["poisson-lognormal-filling"]
    case = case["settings"][name]
    schedule = PoissonLogNormal(mean=case["mean"], mean_of="rate", max=1000)
    assert schedule.mean == pytest.approx(case["exact"]["total"]["mean"], rel=1e-9)
    drawn = schedule.draw(rng(), 100_000)
    grad = np.array([LoopDraw(drawn, "step", case["backprop"]).backprop_of(int(n)) for n in drawn])
    for what, figures in {"total": drawn, "grad": grad, "nograd": drawn - grad}.items():
        check_exact(figures, case["exact"][what])
    share = np.bincount(drawn, minlength=66)[1:65] / len(drawn)
    pmf = np.array(case["exact_pmf_total_1_to_64"])
    assert (np.abs(share - pmf) < 5 * (pmf * (1 - pmf) / len(drawn)) ** 0.5 + 1e-4).all()
    at_most = case["exact_prob_total_at_most_backprop"]
    error = 4 * (at_most * (1 - at_most) / len(drawn)) ** 0.5
    assert (drawn <= case["backprop"]).mean() == pytest.approx(at_most, abs=error)


def test_poisson_lognormal_mean_follows_mean_of() -> None:
    for mean in (2.0, 9.0, 33.0):
        loops = PoissonLogNormal(mean=mean, max=2000)
        rate = PoissonLogNormal(mean=mean, mean_of="rate", max=2000)
        assert loops.mean == pytest.approx(mean, rel=1e-6)
        assert rate.mean == pytest.approx(mean + 1, rel=1e-6)
        assert loops.draw(rng(), 100_000).mean() == pytest.approx(mean, rel=0.01)
    assert PoissonLogNormal(mean=33).draw(rng(1), 9).tolist() == (
        PoissonLogNormal(mean=32, mean_of="rate").draw(rng(1), 9).tolist()
    )
    with pytest.raises(ValueError, match="mean must be more than 1"):
        PoissonLogNormal(mean=1.0)


@pytest.mark.parametrize("name", PARCAE)
def test_poisson_reproduces_parcae(golden_dir: Path, name: str) -> None:
    case = json.loads((golden_dir / "parcae/sampler.json").read_text())[name]
    exact = case["exact_per_sequence"]
    schedule = Poisson(mean=case["mean_recurrence"], max=200)
    assert schedule.mean == pytest.approx(exact["total"]["mean"], rel=1e-9)
    sizes = BatchSizes.of(100_000, 100_000, 1)
    drawer = LoopSampler(schedule, seed=0, per="sequence", backprop=case["mean_backprop_depth"], num_steps=1)
    draw = drawer.draw(0, sizes)
    grad = np.minimum(draw.counts, draw.backprop)
    for what, figures in {"total": draw.counts, "grad": grad, "nograd": draw.counts - grad}.items():
        check_exact(figures, exact[what])


def test_poisson_curriculum_reproduces_parcae(golden_dir: Path) -> None:
    cases = json.loads((golden_dir / "parcae/sampler.json").read_text())["curricula"]
    assert len(cases) == 6
    for case in cases:
        schedule = PoissonCurriculum(
            mean=case["mean_recurrence"],
            backprop=case["mean_backprop_depth"],
            ramps=case["curriculum_target"],
            ramp=100,
            shape="one_minus_sqrt" if "sqrt" in case["scheme"] else "linear",
        )
        for point in case["schedule"]:
            assert schedule.scale(point["step"], 1000) * schedule.rate == pytest.approx(point["poisson_mean"])
            assert schedule.backprop(point["step"], 1000) == point["max_grad_steps"]
    with pytest.raises(ValueError, match="backprop 9 is more than the mean, 8"):
        PoissonCurriculum(mean=8, backprop=9)


def test_backward_curriculum_limits_backprop() -> None:
    schedule = Curriculum(of=lambda: PoissonCurriculum(mean=8, backprop=4, ramps="backward", ramp=100), ramp=0.0)
    sizes = BatchSizes.of(4, 2, 1)
    loops_by_step = {}
    for backprop in ("all", 3):
        drawer = LoopSampler(schedule, seed=0, per="step", backprop=backprop, num_steps=200)
        loops_by_step[backprop] = [drawer.draw(step, sizes).backprop for step in (0, 25, 75, 150)]
    assert loops_by_step == {"all": [1, 1, 3, 4], 3: [1, 1, 3, 3]}
    assert LoopSampler(Fixed(), seed=0, per="step", backprop="all", num_steps=9).draw(0, sizes).backprop is None


def test_the_published_ramp_of_retrofitted_recurrence() -> None:
    # r(t) = 1 + (32 - 1)(1 - sqrt(1 - t)) is the rate; one loop more runs
    curriculum = Curriculum(
        of=lambda: PoissonLogNormal(mean=32, mean_of="rate", max=2000), start=2, ramp=0.25, shape="one_minus_sqrt"
    )
    for step in (0, 50, 100, 200, 249, 250, 900):
        rate = 1 + 31 * (1 - max(0.0, 1 - step / 250) ** 0.5)
        assert curriculum.scale(step, 1000) * curriculum.mean == pytest.approx(rate + 1, rel=1e-6)
    assert curriculum.draw(rng(), 100_000, curriculum.scale(0, 1000)).mean() == pytest.approx(2, rel=0.01)


def test_curriculum_rises_from_start_to_mean() -> None:
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


def test_curriculum_bounds_cover_its_ramp() -> None:
    ramped = Curriculum(of=lambda: Fixed(loops=4), start=2.0, ramp=10)
    assert ramped.bounds == (2, 4)
    assert [int(ramped.draw(rng(), 1, ramped.scale(step, 100))[0]) for step in (0, 5, 10)] == [2, 3, 4]
