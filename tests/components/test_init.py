"""First weights: their distributions, and what they depend on."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from loopkit.components.init import DeepNormInit, Init, InitContext, NormalInit, ScaledInit, TorchDefault
from loopkit.errors import UserError
from loopkit.recipe.format import HeadConfig
from tests.model.tiny import tiny


def fill(init: Init, model: nn.Module, *, seed: int = 0, depth: float = 8.0) -> nn.Module:
    init(model, InitContext(width=256, once_layers=int(depth)), torch.Generator().manual_seed(seed))
    return model


def layers() -> nn.Module:
    return nn.ModuleDict(
        {"table": nn.Embedding(300, 256), "inner": nn.Linear(256, 512), "out": nn.Linear(512, 256, bias=False)}
    )


def test_torch_default_equals_torch_layers() -> None:
    filled, reference = fill(TorchDefault(), layers()), layers()
    for (name, a), (_, b) in zip(filled.named_parameters(), reference.named_parameters(), strict=True):
        assert a.std().item() == pytest.approx(b.std().item(), rel=0.06), name
        if name.startswith("table"):
            assert a.std().item() == pytest.approx(1, rel=0.02)
            assert a.abs().max() > 4
        else:
            bound = 1 / math.sqrt(512 if name.startswith("out") else 256)
            for values in (a, b):
                assert 0.98 * bound < values.abs().max() <= bound, name


def test_normal_and_scaled() -> None:
    model = fill(NormalInit(std=0.5), layers())
    assert model["inner"].weight.std().item() == pytest.approx(0.5, rel=0.02)
    assert model["table"].weight.std().item() == pytest.approx(0.5, rel=0.02)
    assert model["inner"].bias.abs().sum() == 0
    base = math.sqrt(2 / (5 * 256))
    model = fill(ScaledInit(), layers(), depth=8.0)
    assert model["inner"].weight.std().item() == pytest.approx(base, rel=0.02)
    assert model["out"].weight.std().item() == pytest.approx(base / 4, rel=0.02)
    model = fill(ScaledInit(std=1.0, depth=2.0), layers())
    assert model["out"].weight.std().item() == pytest.approx(0.5, rel=0.02)


def test_weights_of_unchanged_parts_are_equal() -> None:
    raw, gated = tiny(readout="raw").state_dict(), tiny(gate="linear", prelude=0).state_dict()
    assert set(gated) - set(raw) == {"gate.linear.weight", "gate.linear.bias", "readout.norm.weight"}
    assert all(torch.equal(raw[name], gated[name]) for name in raw)
    other = tiny(readout="raw", seed=1).state_dict()
    assert not torch.equal(other["embedding.tokens.weight"], raw["embedding.tokens.weight"])


def test_shared_parameters_are_initialised_once() -> None:
    tied, untied = tiny(init="torch_default"), tiny(init="torch_default", head=HeadConfig(tied=False))
    assert torch.equal(tied.head.weight, untied.embedding.tokens.weight)
    assert untied.head.weight.abs().max() <= 1 / 4


def test_components_set_their_own_constants_last() -> None:
    class Identity(nn.Module):
        """Wants its matrix to be the identity."""

        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Linear(3, 3)

        def reset_parameters(self) -> None:
            nn.init.eye_(self.matrix.weight)

    model = fill(NormalInit(), Identity())
    assert torch.equal(model.matrix.weight.detach(), torch.eye(3))
    damped = tiny(carry={"type": "damping", "factor": 0.5})
    assert damped.carry.logit == 0


def test_uninitialised_parameter_is_an_error() -> None:
    class Forgotten(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    with pytest.raises(UserError, match=r"Forgotten at 'inside' owns parameters .* no reset_parameters\(\)"):
        fill(NormalInit(), nn.ModuleDict({"inside": Forgotten()}))


def test_the_global_generator_is_left_alone() -> None:
    model = layers()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fill(TorchDefault(), model)
    assert torch.equal(torch.rand(1), expected)


def test_deepnorm_scales_residual_branches_of_the_core() -> None:
    """Queries and keys, prelude and coda keep Xavier's deviation; v, o and the MLP of the core are smaller."""
    model = tiny(width=64, core=2, prelude=1)
    scale = InitContext(width=64, num_layers=2, once_layers=1, max_loops=4)
    DeepNormInit()(model, scale, torch.Generator().manual_seed(0))
    gain = (8 * 2 * 4) ** -0.25
    for stage, expected in ((model.core, gain), (model.prelude, 1.0)):
        block = stage.blocks[0]
        for role, (matrix, rows) in {**block.attention.roles(), **block.mlp.roles()}.items():
            weight = matrix.weight[rows]
            std = (2 / sum(weight.shape)) ** 0.5 * (1.0 if role in "qk" else expected)
            assert weight.std().item() == pytest.approx(std, rel=0.05), (stage, role)
