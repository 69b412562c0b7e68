"""Probes against closed forms, on a model small enough to work out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from loopkit.components.probe import first_sequences, passes, token_vectors
from loopkit.components.probe.clamp import ClampProbe, freeze_norm, remove_radial
from loopkit.components.probe.norms import Norms, summary
from loopkit.components.probe.radial import Radial, alignment
from loopkit.components.probe.scale_sweep import ScaleSweep
from loopkit.components.probe.update import Update
from loopkit.loop import EVERY, PAD, Batch, Loops, Noise, Step, Trajectory


class Toy:
    """``s_k = s_{k-1} A`` with any readout, in fp64."""

    width, vocabulary, max_length, max_depth = 3, 5, 4, None

    def __init__(self, core: Tensor, *, readout: Callable[[Tensor, int, int], Tensor] | None = None) -> None:
        torch.manual_seed(0)
        self.core = core.double()
        self.table = torch.randn(self.vocabulary, self.width, dtype=torch.float64)
        self.readout = readout or (lambda s, k, at: s)
        self.depth_free = True
        self.max_loops = 4
        self.core_calls = 0
        self.training = False

    def run(
        self,
        batch: Batch,
        loops: Loops,
        *,
        intervene: Callable[[Tensor, int], Tensor] | None = None,
        keep: Container[int] = EVERY,
        **_: Any,
    ) -> Trajectory:
        c = self.table[batch.tokens]
        t = Trajectory(self, batch, loops, e=c, noise=Noise(0, 0, batch.sample, batch.positions))  # type: ignore[arg-type]
        t.keep(0, c, c)
        for k in range(1, loops.total + 1):
            c = c @ self.core
            self.core_calls += 1
            if intervene is not None:
                c = intervene(c, k)
            t.reached = k
            if k in keep:
                t.keep(k, c, c)
        return t

    def read(self, s: Tensor, k: int, step: Step, dtype: torch.dtype | None = None, *_: Any) -> Tensor:
        return self.readout(s if dtype is None else s.to(dtype), k, step.loops.total)

    def head(self, z: Tensor, labels: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        logits = z @ self.table.to(z.dtype).T
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)


def batch_of(rows: int = 2, length: int = 4, *, unscored: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, (rows, length), generator=generator)
    labels = torch.randint(5, (rows, length), generator=generator)
    labels[:, :unscored] = -100
    return Batch.of(tokens, labels)


def turn(angle: float, growth: float = 1.0) -> Tensor:
    """Rotate the first two channels and stretch all."""
    c, s = math.cos(angle), math.sin(angle)
    return growth * torch.tensor([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)


def normed(s: Tensor, k: int, at: int) -> Tensor:
    return s / s.square().mean(-1, keepdim=True).sqrt()


def measure(probe: Any, model: Toy, *batches: Batch, depths: tuple[int, ...] = (1, 2, 4)) -> Any:
    with torch.no_grad():
        for batch in batches:
            for t, served in passes(model, batch, depths):  # type: ignore[arg-type]
                probe.observe(t, served)
        probe.run(model, batches, depths)
    return probe.result()


class TestContract:
    def test_one_pass_covers_all_depths(self) -> None:
        model = Toy(turn(0.1))
        groups = [(t.reached, served) for t, served in passes(model, batch_of(), [4, 1])]  # type: ignore[arg-type]
        assert groups == [(4, [1, 4])]
        assert model.core_calls == 4

    def test_length_dependent_loop_runs_once_per_depth(self) -> None:
        model = Toy(turn(0.1))
        model.depth_free = False
        groups = [(t.reached, served) for t, served in passes(model, batch_of(), [4, 1])]  # type: ignore[arg-type]
        assert groups == [(1, [1]), (4, [4])]

    def test_takes_the_same_sequences_for_any_batch_size(self) -> None:
        batch = batch_of(6)
        for size in (1, 2, 4, 6):
            tokens = torch.cat([part.tokens for part in first_sequences(batch.split(size), 5)])
            assert torch.equal(tokens, batch.tokens[:5])

    def test_padding_is_excluded(self) -> None:
        batch = replace(batch_of(2), positions=torch.tensor([[0, 1, 2, 3], [0, 1, PAD, PAD]]))
        assert token_vectors(torch.ones(2, 4, 2, 3), batch).shape == (6, 6)


class TestNorms:
    def test_summary_matches_the_library(self) -> None:
        values = torch.randn(101, dtype=torch.float64)
        result = summary(values)
        assert result["mean"] == pytest.approx(values.mean().item())
        assert result["median"] == pytest.approx(values.quantile(0.5).item())
        assert result["p99"] == pytest.approx(values.quantile(0.99).item())
        assert result["max"] == values.max().item()
        assert result["std"] == pytest.approx(values.std(correction=0).item())

    def test_rotation_preserves_norms(self) -> None:
        model, batch = Toy(turn(0.7, growth=2.0)), batch_of()
        result = measure(Norms(), model, batch).by_depth["state_norm"]
        start = model.table[batch.tokens].norm(dim=-1)
        for depth in (1, 2, 4):
            assert result[depth]["mean"] == pytest.approx(2**depth * start.mean().item(), rel=1e-6)
            assert result[depth]["max"] == pytest.approx(2**depth * start.max().item(), rel=1e-6)

    def test_token_limit(self) -> None:
        model, batches = Toy(turn(0.1)), batch_of(4).split(1)
        few = measure(Norms(tokens=6), model, *batches)
        start = model.table[batch_of(4).tokens].norm(dim=-1).flatten()[:6]
        assert few.by_depth["state_norm"][2]["max"] == pytest.approx(start.max().item(), rel=1e-6)

    def test_no_observation_gives_no_figure(self) -> None:
        assert Norms().result().by_depth == {"state_norm": {}}


class TestRadial:
    def test_scale_invariant_readout_gives_zero(self) -> None:
        result = measure(Radial(), Toy(turn(0.3, 1.5), readout=normed), batch_of()).by_depth
        assert max(result["radial_fraction"].values()) < 1e-9
        assert max(map(abs, result["scale_gradient"].values())) < 1e-12

    def test_raw_readout_depends_on_scale(self) -> None:
        result = measure(Radial(), Toy(turn(0.3)), batch_of()).by_depth
        assert min(result["radial_fraction"].values()) > 1e-3

    def test_gradient_of_the_norm_is_radial(self) -> None:
        s = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(s.square().sum(), s)
        share, along = alignment(gradient, s.detach())
        torch.testing.assert_close(share, torch.ones(2, 4, dtype=torch.float64), rtol=1e-15, atol=0)
        torch.testing.assert_close(along, 2 * s.detach().square().sum(-1))

    def test_scale_gradient_matches_finite_differences(self) -> None:
        model, batch = Toy(turn(0.3)), batch_of(unscored=1)
        result = measure(Radial(), model, batch).by_depth["scale_gradient"]
        t = model.run(batch, Loops.fixed(2))

        def loss(log_scale: float) -> float:
            z = t.state(2) * math.exp(log_scale)
            return F.cross_entropy(model.head(z).flatten(0, 1), batch.labels.flatten()).item()

        assert result[2] == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, rel=1e-6)

    def test_at_option_selects_the_readout(self) -> None:
        def final_only(s: Tensor, k: int, at: int) -> Tensor:
            return normed(s, k, at) if k == at else s

        model = Toy(turn(0.3), readout=final_only)
        trained = measure(Radial(), model, batch_of(), depths=(1, 4, 6)).by_depth["radial_fraction"]
        assert trained[1] > 1e-3
        assert trained[4] < 1e-9
        assert trained[6] < 1e-9
        last = measure(Radial(at="last"), model, batch_of(), depths=(1, 4)).by_depth["radial_fraction"]
        assert max(last.values()) < 1e-9

    def test_batches_add_up(self) -> None:
        full = measure(Radial(), Toy(turn(0.3)), batch_of(6)).by_depth
        parts = measure(Radial(), Toy(turn(0.3)), *batch_of(6).split(1)).by_depth
        for name, values in full.items():
            assert parts[name] == pytest.approx(values, rel=1e-12)

    def test_token_limit(self) -> None:
        few = measure(Radial(tokens=8), Toy(turn(0.3)), *batch_of(6).split(1)).by_depth
        assert few == measure(Radial(), Toy(turn(0.3)), *batch_of(6).split(1)[:2]).by_depth


class TestUpdate:
    def test_pure_scaling_is_radial(self) -> None:
        model, batch = Toy(turn(0.0, growth=1.5)), batch_of()
        result = measure(Update(loops=3), model, batch).by_depth
        size = model.table[batch.tokens].square().mean(-1).sqrt().mean().item()
        for depth in (1, 2, 4):
            # s = size * 1.5^(k-1) before the loop, and the loop adds half of it
            assert result["radial_update"][depth] == pytest.approx(0.5 * size * 1.5 ** (depth - 1))
            assert result["angular_update"][depth] == pytest.approx(0, abs=1e-12)
            assert result["angular_step"][depth] == pytest.approx(0, abs=1e-12)

    def test_rotation_matches_closed_form(self) -> None:
        model, batch = Toy(turn(math.pi / 3)), batch_of(1, 1)
        model.table = torch.tensor([[3.0, 4.0, 0.0]] * 5, dtype=torch.float64)
        result = measure(Update(loops=4), model, batch).by_depth
        rms = 5 / math.sqrt(3)
        for depth in (1, 2, 4):
            assert result["radial_update"][depth] == pytest.approx(rms * (math.cos(math.pi / 3) - 1))
            assert result["angular_update"][depth] == pytest.approx(rms * math.sin(math.pi / 3))
            assert result["angular_step"][depth] == pytest.approx(2 * math.sin(math.pi / 6))

    def test_lemma_2_for_a_direction_dependent_core(self) -> None:
        class Adds(Toy):
            def run(self, batch: Batch, loops: Loops, **options: Any) -> Trajectory:
                t = super().run(batch, Loops.fixed(0), **options)
                s = t.state(0)
                for k in range(1, loops.total + 1):
                    u = normed(s, k, k)
                    s = s + u + 0.05 * u.roll(1, -1)
                    t.reached = k
                    t.keep(k, s, s)
                return t

        measured = measure(Update(loops=30), Adds(turn(0.0)), batch_of(4))
        lemma = measured.tables["lemma_2"]
        assert lemma["loops"] == [11, 30]
        assert lemma["growth"] == pytest.approx(lemma["radial_update"], rel=1e-2)
        assert lemma["turn_times_rms"] == pytest.approx(lemma["angular_update"], rel=0.1)
        assert [row["loop"] for row in measured.tables["update"]] == list(range(1, 31))

    def test_loops_are_limited_by_max_depth(self) -> None:
        model = Toy(turn(0.1))
        model.max_depth = 6  # type: ignore[assignment]
        measured = measure(Update(), model, batch_of())
        assert [row["loop"] for row in measured.tables["update"]] == [1, 2, 3, 4, 5, 6]
        assert "lemma_2" not in measured.tables

    def test_zero_state_is_excluded(self) -> None:
        model = Toy(torch.zeros(3, 3))
        measured = measure(Update(loops=4), model, batch_of())
        assert measured.by_depth["radial_update"] == {}


class TestScaleSweep:
    def test_constant_for_scale_invariant_readout(self) -> None:
        result = measure(ScaleSweep(), Toy(turn(0.3), readout=normed), batch_of())
        assert max(result.by_depth["scale_range"].values()) < 1e-12

    def test_loss_matches_rescaled_state(self) -> None:
        model, batch = Toy(turn(0.3)), batch_of(unscored=2)
        result = measure(ScaleSweep(factors=(0.5, 1.0)), model, batch)
        z = model.run(batch, Loops.fixed(4)).state(4)
        losses = [
            F.cross_entropy(model.head(z * factor).flatten(0, 1), batch.labels.flatten()).item()
            for factor in (0.5, 1.0)
        ]
        assert result.tables["scale_sweep"]["loss"]["4"] == pytest.approx(losses, rel=1e-12)
        assert result.by_depth["scale_range"][4] == pytest.approx(abs(losses[0] - losses[1]), rel=1e-9)


class TestClamp:
    def test_scaling_core_matches_closed_form(self) -> None:
        model, batch = Toy(turn(0.0, growth=2.0)), batch_of()
        result = measure(ClampProbe(), model, batch).by_depth
        s1 = model.run(batch, Loops.fixed(1)).state(1)

        def loss(z: Tensor) -> float:
            return F.cross_entropy(model.head(z).flatten(0, 1), batch.labels.flatten()).item()

        for k in (1, 2, 4):
            # clamped at every loop, the state stays where loop 1 left it; so it does without its radial part
            for arm in ("clamp", "radial_removal"):
                assert result[f"{arm}_norm_ratio"][k] == pytest.approx(2.0 ** (1 - k))
                assert result[f"{arm}_loss_change"][k] == pytest.approx(loss(s1) - loss(s1 * 2 ** (k - 1)), abs=1e-6)

    def test_clamp_does_not_change_a_rotation(self) -> None:
        result = measure(ClampProbe(), Toy(turn(0.7)), batch_of()).by_depth
        assert result["clamp_loss_change"] == pytest.approx(dict.fromkeys((1, 2, 4), 0), abs=1e-6)
        assert result["clamp_norm_ratio"] == pytest.approx(dict.fromkeys((1, 2, 4), 1))

    def test_interventions_fix_norm_and_remove_radial_part(self) -> None:
        first, second = torch.randn(2, 3, 2, 4), torch.randn(2, 3, 2, 4)
        freeze = freeze_norm()
        assert torch.equal(freeze(first, 1), first)
        torch.testing.assert_close(freeze(second, 2).flatten(2).norm(dim=-1), first.flatten(2).norm(dim=-1))
        remove = remove_radial()
        assert torch.equal(remove(first, 1), first)
        update = (remove(second, 2) - first).flatten(2)
        torch.testing.assert_close((update * first.flatten(2)).sum(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)

    def test_empty_evaluation_gives_no_figures(self) -> None:
        assert measure(ClampProbe(), Toy(turn(0.1))).by_depth == {}
        assert measure(ScaleSweep(), Toy(turn(0.1))).by_depth == {"scale_range": {}}
        assert measure(Update(), Toy(turn(0.1))).by_depth["radial_update"] == {}
