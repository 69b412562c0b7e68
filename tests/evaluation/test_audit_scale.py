"""Control of the scale: closed forms, the recipes of the paper, and unregistered components."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from loopkit.evaluation.audit import ScaleFinding, audit_recipe, warn_of_blind_spot
from loopkit.evaluation.audit.rescaling import rescaled, slope
from loopkit.evaluation.audit.scale import scale_of
from loopkit.evaluation.audit.surrogate import surrogate
from loopkit.evaluation.audit.update_geometry import split
from loopkit.loop import Loops
from loopkit.recipe import load_recipe

BLIND = ("norm", "terminal_norm", "exit_weighted", "damping")
CONTROLLED = (
    "raw",
    "terminal_raw",
    "final_only",
    "norm_penalty",
    "terminal_norm_penalty",
    "carry_norm",
    "alpha",
)
PLUGIN = '''
from __future__ import annotations
import torch
from pydantic import PositiveFloat
from torch import Tensor
from loopkit.components.carry import Carry
from loopkit.components.regularizer import Regularizer
from loopkit.components.supervision import PerLoop, Supervised
from loopkit.loop import Step, Trajectory
from loopkit.registry import register

@register("carry", "bounded")
class Bounded(Carry):
    """Bounds every channel."""
    def __init__(self) -> None:
        super().__init__()
    def forward(self, s: Tensor, read, step: Step) -> Tensor:
        return s.tanh()

@register("carry", "shrunk")
class Shrunk(Carry):
    """A fixed factor: smaller, and not bounded."""
    def __init__(self) -> None:
        super().__init__()
    def forward(self, s: Tensor, read, step: Step) -> Tensor:
        return 0.4 * s

@register("regularizer", "on_the_jacobian")
class OnTheJacobian(Regularizer):
    """Acts on weights, at a state that it holds fixed."""
    def __init__(self) -> None:
        super().__init__()
        self.weight = 0.1
    def forward(self, t: Trajectory) -> Tensor:
        c = t.carried(t.reached).detach().requires_grad_()
        after = t.step(c)
        (product,) = torch.autograd.grad(after, c, torch.ones_like(after), create_graph=True)
        return product.square().mean()

@register("regularizer", "log_scale")
class LogScale(Regularizer):
    """Grows with the logarithm of the scale."""
    def __init__(self, *, weight: PositiveFloat = 0.5) -> None:
        super().__init__()
        self.weight = weight
    def forward(self, t: Trajectory) -> Tensor:
        return t.state(t.reached).square().mean(-1).log().mean() / 2

@register("regularizer", "broken")
class Broken(Regularizer):
    """Raises."""
    def __init__(self) -> None:
        super().__init__()
        self.weight = 1.0
    def forward(self, t: Trajectory) -> Tensor:
        raise RuntimeError("out of order")

@register("supervision", "with_a_size")
class WithASize(PerLoop):
    """Cross-entropy, and the state's size in the same loss."""
    def __init__(self) -> None:
        super().__init__()
    def forward(self, t: Trajectory) -> Supervised:
        found = super().forward(t)
        return Supervised(found.loss + t.state(1).square().mean(), found.ce)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plugin") / "unheard_of.py"
    file.write_text(PLUGIN)
    return file


def scale(name: str = "norm", *overrides: str, plugins: tuple[Path, ...] = ()) -> ScaleFinding:
    return scale_of(surrogate(load_recipe(f"wikitext_44m_{name}", overrides=overrides, plugins=plugins)))


@pytest.mark.parametrize("name", [*BLIND, *CONTROLLED])
@pytest.mark.parametrize("init", ["torch_default", "normal"])
def test_verdicts_of_the_papers_recipes(name: str, init: str) -> None:
    assert scale(name, f"model.init={init}").verdict == ("blind spot" if name in BLIND else "controlled")


def test_reason_for_each_controlled_scale() -> None:
    assert scale("raw").visible
    assert [view.loop for view in scale("final_only").views if view.sees] == [1, 2, 3]
    assert scale("norm_penalty").held_by == ["regularizer norm_penalty"]
    assert not scale("carry_norm").active
    damped = scale("damping").motion
    assert damped is not None
    assert damped.power_of_carry == pytest.approx(1.0)
    assert damped.kept == pytest.approx(0.88, abs=0.01)
    assert 0.01 < scale("alpha").views[0].fraction[100] < scale("raw").views[0].fraction[100]


@pytest.mark.parametrize(
    ("overrides", "verdict"),
    [
        (["model.block.placement=post_sandwich"], "controlled"),
        (["model.block.placement=pre_sandwich"], "blind spot"),
        (["model.block.placement=pre_sandwich", "model.carry=readout"], "controlled"),
        (["model.carry=clamp"], "controlled"),
        (["model.carry={type: clamp, rms: 1000, side: above}"], "blind spot"),
        (["model.injection=add"], "blind spot"),
        (["model.injection={type: add, norm: rmsnorm}"], "controlled"),
        (["model.readout=raw", "model.coda={layers: 1, norm: rmsnorm}"], "blind spot"),
        (["model.readout=final_only", "train.backprop=1"], "blind spot"),
        (["model.readout=final_only", "objective.supervision=terminal"], "blind spot"),
        (["model.readout={type: alpha, alpha: 0.0}"], "blind spot"),
        (["objective.regularizers={norm_penalty: {weight: 0.0}}"], "blind spot"),
        (["objective.regularizers={scale_anchor: {}}"], "controlled"),
        (["train.schedule.loops=1"], "controlled"),
    ],
)
def test_other_architectures(overrides: list[str], verdict: str) -> None:
    assert scale("norm", *overrides).verdict == verdict


@pytest.mark.parametrize(
    ("override", "verdict"),
    [
        ("model.carry=bounded", "controlled"),
        ("model.carry=shrunk", "blind spot"),
        ("objective.regularizers={on_the_jacobian: {}}", "blind spot"),
        ("objective.regularizers={log_scale: {}}", "controlled"),
        ("objective.supervision=with_a_size", "controlled"),
    ],
)
def test_components_of_a_plugin(plugin: Path, override: str, verdict: str) -> None:
    assert scale("norm", override, plugins=(plugin,)).verdict == verdict


def test_small_states_are_visible_at_natural_scale() -> None:
    finding = scale("norm", "model.init={type: normal, std: 0.02}", "model.readout.norm.eps=1e-3")
    assert finding.views[0].fraction[1] > 1e-3 > finding.views[0].fraction[100]
    assert not finding.visible


def test_slope_of_a_quadratic_loss() -> None:
    subject = surrogate(load_recipe("wikitext_44m_norm"))
    with torch.no_grad():
        t = subject.model.run(subject.batch, Loops.fixed(3, 2))
    twin, leaves = rescaled(t, 10.0)
    assert sorted(leaves) == [2, 3], "the first loop carries no gradient"
    loss = torch.stack([twin.state(k).square().sum() for k in (1, 2, 3)]).sum()
    expected = 2 * sum(100 * t.state(k).square().sum().item() for k in (2, 3))
    assert slope(loss, leaves) == pytest.approx(expected, rel=1e-12)
    assert slope(torch.zeros(()), leaves) == 0.0
    assert torch.equal(twin.carried(1), 10.0 * t.state(1))


def test_components_of_an_update() -> None:
    before = torch.tensor([[3.0, 0.0], [0.0, 2.0]]).double()
    after = before + torch.tensor([[1.0, 2.0], [0.0, 0.0]]).double()
    radial, angular, turn = split(before, after)
    half = 2**0.5
    assert radial.tolist() == pytest.approx([1 / half, 0.0])
    assert angular.tolist() == pytest.approx([2 / half, 0.0])
    assert turn[1].item() == 0.0
    assert turn[0].item() == pytest.approx((2 - 2 * 4 / 20**0.5) ** 0.5)


def test_remedies_change_the_verdict() -> None:
    recipe = load_recipe("wikitext_44m_norm")
    finding = audit_recipe(recipe)
    assert finding.scale.verdict == "blind spot"
    assert set(finding.remedies["model.readout"]) >= {"raw", "final_only"}
    assert set(finding.remedies["model.carry"]) >= {"norm", "clamp"}
    assert "damping" not in finding.remedies["model.carry"]
    assert "norm_penalty" in finding.remedies["objective.regularizers"]
    assert audit_recipe(load_recipe("wikitext_44m_raw")).remedies == {}


class TestWarning:
    def test_one_line_or_none(self) -> None:
        line = warn_of_blind_spot(load_recipe("wikitext_44m_norm"))
        assert line is not None
        assert line.startswith("blind spot: ")
        assert "\n" not in line
        assert warn_of_blind_spot(load_recipe("wikitext_44m_raw")) is None

    def test_failed_audit_does_not_stop_training(self, plugin: Path) -> None:
        recipe = load_recipe("wikitext_44m_norm", overrides=["objective.regularizers={broken: {}}"], plugins=(plugin,))
        line = warn_of_blind_spot(recipe)
        assert line == "the audit could not measure this recipe: RuntimeError: out of order"
        with pytest.raises(RuntimeError, match="out of order") as raised:
            audit_recipe(recipe)
        assert raised.value.__notes__ == ["while measuring the regularizer 'broken'"]

    def test_audit_does_not_change_global_state(self) -> None:
        torch.manual_seed(3)
        before, threads = torch.get_rng_state(), torch.get_num_threads()
        with torch.no_grad():
            warn_of_blind_spot(load_recipe("wikitext_44m_norm"))
            assert not torch.is_grad_enabled()
        assert torch.equal(before, torch.get_rng_state())
        assert torch.get_num_threads() == threads


def test_non_finite_state_is_named() -> None:
    subject = surrogate(load_recipe("wikitext_44m_norm"))
    with torch.no_grad():
        subject.model.core.blocks[0].mlp.out.weight.fill_(float("inf"))
    with pytest.raises(ValueError, match="the state after loop 1 is not finite"):
        scale_of(subject)


def test_json_holds_every_figure() -> None:
    recipe = load_recipe("wikitext_44m_norm_penalty")
    finding = audit_recipe(recipe).to_json()
    assert finding["subject"] == "wikitext_44m_norm_penalty"
    assert [view["loop"] for view in finding["scale"]["readouts"]] == [1, 2, 3, 4]
    assert [term["name"] for term in finding["scale"]["terms"]] == ["supervision", "regularizer norm_penalty"]
    assert finding["scale"]["recurrence"]["lemma_2"]["growth"] == pytest.approx(
        finding["scale"]["recurrence"]["lemma_2"]["radial_update"], abs=0.02
    )
    assert finding["recurrence"] == {"verdict": "unknown until trained"}
