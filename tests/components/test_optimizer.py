"""Optimizer rules: which parameters decay, and what a step computes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.optimizer import AdamW, Muon, ParameterGroup


def groups() -> list[ParameterGroup]:
    def parameter(*shape: int) -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.ones(shape))

    return [
        ParameterGroup("matrix", [parameter(2, 3)], "matrix"),
        ParameterGroup("embedding", [parameter(5, 2)], "embedding"),
        ParameterGroup("vector", [parameter(2)], "vector"),
        ParameterGroup("matrix, never decayed", [parameter(2, 2)], "matrix", decay=False),
    ]


@pytest.mark.parametrize(("decay", "expected"), [("all", [0.3, 0.3, 0.3, 0.0]), ("matrices", [0.3, 0.3, 0.0, 0.0])])
def test_decay_depends_on_role_and_component(decay: str, expected: list[float]) -> None:
    built = AdamW(weight_decay=0.3, decay=decay).build(groups())  # type: ignore[arg-type]
    assert [group["weight_decay"] for group in built.param_groups] == expected


def test_adamw_options_reach_torch() -> None:
    built = AdamW(betas=(0.8, 0.95), eps=1e-6).build(groups())
    assert isinstance(built, torch.optim.AdamW)
    for group in built.param_groups:
        assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.95), 1e-6, 0.0)


def test_one_adamw_step_by_hand() -> None:
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    built = AdamW(weight_decay=0.1).build([ParameterGroup("vector", [weight], "vector")])
    weight.grad = torch.tensor([0.5])
    built.param_groups[0]["lr"] = 0.01
    built.step()
    # bias correction makes the first update the sign of the gradient
    assert weight.item() == pytest.approx(2.0 * (1 - 0.01 * 0.1) - 0.01, abs=1e-6)


JORDAN = (3.4445, -4.7750, 2.0315)


def newton_schulz(gradient: Tensor, steps: int = 5) -> Tensor:
    """Jordan's iteration in fp64: X ← a X + (b A + c A²) X with A = X Xᵀ, from X = G / ‖G‖."""
    a, b, c = JORDAN
    x = gradient.double() / gradient.double().norm()
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def muon(**options: Any) -> Muon:
    return Muon(**({"fallback": AdamW, "weight_decay": 0.0, "momentum": 0.0, "scale": "shape"} | options))


def direction(rule: Muon, gradients: list[Tensor], stacked: tuple[int, ...] = ()) -> Tensor:
    """Return the update of the last step in units of the learning rate."""
    weight = torch.nn.Parameter(torch.zeros(gradients[0].shape))
    rows = {id(weight): stacked} if stacked else {}
    built = rule.build([ParameterGroup("matrix", [weight], "matrix", names=("w",), stacked=rows)])
    built.param_groups[0]["lr"] = 0.5
    for gradient in gradients:
        before, weight.grad = weight.detach().clone(), gradient.clone()
        built.step()
    return (before - weight.detach()) / 0.5


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32)])
def test_muon_direction_matches_iteration_in_fp64(shape: tuple[int, int]) -> None:
    gradient = drawn(*shape)
    result = direction(muon(), [gradient]) / math.sqrt(max(1.0, shape[0] / shape[1]))
    expected = newton_schulz(gradient)
    assert (result - expected).abs().max() < 0.03 * expected.abs().max()  # bf16 has 8 bits
    # and that is nearly U Vᵀ: the singular values are near 1, the singular vectors are those of the gradient
    u, _, vh = torch.linalg.svd(gradient.double(), full_matrices=False)
    rotated = u.T @ result.double() @ vh.T
    assert ((rotated.diagonal() > 0.6) & (rotated.diagonal() < 1.25)).all()
    assert (rotated - rotated.diagonal().diag()).abs().max() < 0.05


@pytest.mark.parametrize(("scale", "adjust"), [("shape", "original"), ("rms", "match_rms_adamw")])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32)])
def test_direction_is_bitwise_that_of_torch(scale: str, adjust: str, nesterov: bool, shape: tuple[int, int]) -> None:
    weight, gradient = torch.nn.Parameter(torch.zeros(shape)), drawn(*shape)
    weight.grad = gradient.clone()
    reference = torch.optim.Muon(
        [weight], lr=1.0, weight_decay=0.0, momentum=0.75, nesterov=nesterov, ns_steps=4, adjust_lr_fn=adjust
    )
    reference.step()
    rule = muon(momentum=0.75, nesterov=nesterov, ns_steps=4, scale=scale)
    assert direction(rule, [gradient]).equal(-weight.detach())


@pytest.mark.parametrize(("scale", "factor"), [("shape", math.sqrt(48 / 16)), ("rms", 0.2 * math.sqrt(48))])
def test_muon_scale(scale: str, factor: float) -> None:
    gradient = drawn(48, 16)
    ratio = direction(muon(scale=scale), [gradient]) / newton_schulz(gradient)
    assert ratio.median().item() == pytest.approx(factor, rel=0.02)


@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_momentum_by_hand(nesterov: bool) -> None:
    gradients = [drawn(12, 20, seed=seed) for seed in range(3)]
    average = torch.zeros(12, 20)
    for gradient in gradients:
        average = 0.8 * average + 0.2 * gradient
    update = 0.8 * average + 0.2 * gradients[-1] if nesterov else average
    expected = newton_schulz(update)
    result = direction(muon(momentum=0.8, nesterov=nesterov), gradients)
    assert (result - expected).abs().max() < 0.04 * expected.abs().max()


def test_muon_weight_decay_is_decoupled() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    built = muon(weight_decay=0.3).build([ParameterGroup("matrix", [weight], "matrix")])
    weight.grad = torch.zeros(2, 3)
    built.param_groups[0]["lr"] = 0.1
    built.step()
    assert weight.flatten().tolist() == pytest.approx([1 - 0.1 * 0.3] * 6)


def test_stacked_matrices_are_orthogonalized_separately() -> None:
    parts = [drawn(8, 16), 100 * drawn(4, 16, seed=1), drawn(4, 16, seed=2)]
    together = torch.cat(parts)
    apart = torch.cat([direction(muon(), [part]) for part in parts])
    assert direction(muon(), [together], (8, 4, 4)).equal(apart)
    as_one = direction(muon(split=False), [together], (8, 4, 4))
    assert as_one.equal(direction(muon(), [together]))
    assert not torch.allclose(as_one, apart, atol=0.1)


def mixed() -> list[ParameterGroup]:
    def parameters(*shapes: tuple[int, ...]) -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]

    return [
        ParameterGroup("embedding", parameters((5, 4)), "embedding", names=("embedding.tokens.weight",)),
        ParameterGroup(
            "matrix",
            parameters((4, 4), (1, 4), (2, 4, 4), (4, 6)),
            "matrix",
            names=("core.up.weight", "gate.weight", "core.experts", "injection.mix.weight"),
        ),
        ParameterGroup("vector", parameters((4,)), "vector", names=("core.gain",)),
        ParameterGroup("matrix_no_decay", parameters((3, 3)), "matrix", decay=False, names=("injection.b",)),
    ]


def split_shapes(rule: Muon) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], torch.optim.Optimizer]:
    """Return the shapes that Muon updates and those that the fallback updates."""
    built = rule.build(mixed())
    both: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
    for group in built.param_groups:
        both["shapes" not in group].extend(tuple(parameter.shape) for parameter in group["params"])
    return *both, built


def test_muon_updates_matrices_of_blocks_only() -> None:
    matrices, fallback, built = split_shapes(muon(weight_decay=0.2))
    assert matrices == [(4, 4), (4, 6), (3, 3)]
    assert fallback == [(5, 4), (1, 4), (2, 4, 4), (4,)]
    assert [group["weight_decay"] for group in built.param_groups] == [0.2, 0.0, 0.01, 0.01, 0.01]
    matrices, fallback, _ = split_shapes(muon(exclude=["injection.*"]))
    assert matrices == [(4, 4)]
    assert fallback == [(5, 4), (1, 4), (2, 4, 4), (4, 6), (4,), (3, 3)]
    with pytest.raises(ValueError, match=r"no matrix matches 'injektion\.\*'; there are core\.up\.weight"):
        muon(exclude=["injektion.*"]).build(mixed())


def test_lr_scales_apply_by_role() -> None:
    _, _, built = split_shapes(muon(lr_scales={"embedding": 10.0, "matrix": 0.5}))
    scales = {group["name"]: group.get("lr_scale", 1.0) for group in built.param_groups if "shapes" not in group}
    assert scales == {"embedding": 10.0, "matrix": 0.5, "vector": 1.0}
    assert all("lr_scale" not in group for group in built.param_groups if "shapes" in group)


def test_fallback_steps_all_other_parameters() -> None:
    groups, reference_groups = mixed(), mixed()
    built = muon(fallback=lambda: AdamW(weight_decay=0.3, eps=1e-4)).build(groups)
    reference = AdamW(weight_decay=0.3, eps=1e-4).build([reference_groups[0], reference_groups[2]])
    for seed in range(3):
        for group, other in zip(groups, reference_groups, strict=True):
            for one, two in zip(group.params, other.params, strict=True):
                one.grad = two.grad = drawn(*one.shape, seed=seed)
        for group in (*built.param_groups, *reference.param_groups):
            group["lr"] = 0.01
        built.step(), reference.step()
    for index in (0, 2):
        assert groups[index].params[0].equal(reference_groups[index].params[0])


def test_muon_without_matrices_and_without_other_parameters() -> None:
    groups = mixed()
    assert all("shapes" not in group for group in muon().build([groups[0], groups[2]]).param_groups)
    assert all("shapes" in group for group in muon().build([groups[3]]).param_groups)
