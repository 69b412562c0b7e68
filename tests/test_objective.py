"""One scalar: how its parts add up, and that micro-batches add up to the batch."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from loopkit.components.regularizer import Regularized, Regularizer
from loopkit.components.supervision import ExitWeighted, PerLoop, Terminal
from loopkit.loop import Loops, Trajectory
from loopkit.objective import Objective, build_objective
from loopkit.recipe import component
from loopkit.recipe import format as recipe
from tests.model.tiny import batch, tiny


class Fixed(Regularizer):
    """A constant that begins at a step."""

    def __init__(self, value: float, weight: float, mix: Literal["additive", "convex"], start: int = 0) -> None:
        super().__init__()
        self.value, self.weight, self.mix, self.start = value, weight, mix, start
        self.calls = 0

    def active(self, optimizer_step: int) -> bool:
        return optimizer_step >= self.start

    def forward(self, t: Trajectory) -> Tensor:
        self.calls += 1
        return t.e.new_tensor(self.value)


def run() -> Trajectory:
    return tiny().run(batch(), Loops.fixed(3))


def test_additive_and_convex_weights() -> None:
    t = run()
    supervised = Terminal()(t).loss
    objective = Objective(Terminal(), {"a": Fixed(5.0, 0.1, "additive"), "b": Fixed(7.0, 0.2, "convex")})
    got = objective(t, optimizer_step=0)
    torch.testing.assert_close(got.loss, 0.8 * supervised + 0.1 * 5 + 0.2 * 7)
    torch.testing.assert_close(got.supervised, supervised.detach())
    assert {name: value.item() for name, value in got.regularizers.items()} == {"a": 5.0, "b": 7.0}


def test_inactive_regularizer_is_not_computed() -> None:
    t, late = run(), Fixed(7.0, 0.2, "convex", start=3)
    objective = Objective(Terminal(), {"late": late})
    got = objective(t, optimizer_step=2)
    torch.testing.assert_close(got.loss, got.supervised)
    assert got.regularizers == {}
    assert late.calls == 0
    assert objective(t, optimizer_step=3).regularizers.keys() == {"late"}


class Named(Fixed):
    """A constant of two parts."""

    mean_over = "tokens"

    def forward(self, t: Trajectory) -> Regularized:
        return Regularized(super().forward(t), {"near": t.e.new_tensor(1.0), "far": t.e.new_tensor(4.0)})


def test_named_terms_are_logged_beside_the_value() -> None:
    """Joined over micro-batches as the value is; the loss takes the value alone."""
    t = run()
    got = Objective(Terminal(), {"a": Named(5.0, 0.1, "additive")})(t, 0, token_share=0.5)
    logged = {name: value.item() for name, value in got.regularizers.items()}
    assert logged == {"a": 2.5, "a/near": 0.5, "a/far": 2.0}
    torch.testing.assert_close(got.loss, got.supervised + 0.1 * 2.5)


def test_share_multiplies_the_supervised_part_alone() -> None:
    t = run()
    objective = Objective(Terminal(), {"a": Fixed(5.0, 0.1, "additive"), "b": Fixed(7.0, 0.2, "convex")})
    got = objective(t, optimizer_step=0, share=0.5)
    torch.testing.assert_close(got.loss, 0.5 * 0.8 * got.supervised + 0.5 + 1.4)


def test_everything_but_the_loss_is_detached() -> None:
    model = tiny(gate="linear")
    objective = build_objective(
        recipe.ObjectiveConfig(
            supervision=component("supervision", "exit_weighted"),
            regularizers={"norm_penalty": component("regularizer", "norm_penalty")},
        )
    )
    got = objective(model.run(batch(), Loops.fixed(3)), optimizer_step=0)
    assert got.loss.requires_grad
    assert got.loss.dtype == torch.float32
    values = [got.supervised, *got.ce.values(), *got.regularizers.values(), *got.terms.values()]
    assert len(values) == 1 + 3 + 1 + 2
    assert not any(value.requires_grad for value in values)
    assert objective.regularizers["norm_penalty"].weight == 0.01


def test_convex_weights_past_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"convex weights add up to 1\.2"):
        Objective(Terminal(), {"a": Fixed(1.0, 0.5, "convex"), "b": Fixed(1.0, 0.7, "convex")})


@pytest.mark.parametrize("supervision", [Terminal(), PerLoop(), ExitWeighted(entropy=0.1)])
def test_micro_batch_losses_add_up_to_batch_loss(supervision: object) -> None:
    model, data = tiny(gate="linear", dtype=torch.float64), batch(rows=8)
    labels = data.labels.clone()
    for row in range(8):
        labels[row, : row + 2] = -100
    data = type(data)(data.tokens, labels, data.positions, data.sample)
    objective = Objective(supervision)

    def gradient(size: int) -> dict[str, Tensor]:
        model.zero_grad()
        parts = data.split(size)
        for part in parts:
            share = part.num_scored * len(parts) / data.num_scored
            (objective(model.run(part, Loops.fixed(3)), 0, share).loss / len(parts)).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    full, split = gradient(8), gradient(3)
    assert full.keys() == split.keys()
    for name in full:
        torch.testing.assert_close(split[name], full[name], msg=lambda text, name=name: f"{name}: {text}")
