"""The power method against matrices whose spectral radius is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from loopkit.components.probe.power import spectral_radius


def radius(*matrices: Tensor, steps: int = 200, transposed: bool = False) -> list[float]:
    """Of several matrices of one size, side by side."""
    stack = torch.stack([matrix.T if transposed else matrix for matrix in matrices])
    start = torch.randn(stack.shape[:2], generator=torch.Generator().manual_seed(0), dtype=stack.dtype)
    return spectral_radius(lambda v: (stack @ v[..., None])[..., 0], start, steps=steps).rho.tolist()


def test_closed_forms_match() -> None:
    turn = torch.tensor([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]], dtype=torch.float64)
    flip, shift = torch.diag(torch.tensor([-3.0, 1.0])).double(), torch.tensor([[0.0, 9.0], [0.0, 0.0]]).double()
    result = radius(1.2 * turn, flip, shift, torch.zeros(2, 2, dtype=torch.float64))
    assert result == pytest.approx([1.2, 3.0, 0.0, 0.0], rel=1e-9)


def test_parallel_maps_are_independent() -> None:
    matrices = [torch.randn(5, 5, generator=torch.Generator().manual_seed(seed)).double() for seed in range(3)]
    radii = [radius(matrix)[0] for matrix in matrices]
    for matrix, value in zip(matrices, radii, strict=True):
        assert value == pytest.approx(torch.linalg.eigvals(matrix).abs().max().item(), rel=0.02)
    assert len(set(radii)) == 3


def test_vectors_of_any_shape() -> None:
    result = spectral_radius(lambda v: 0.5 * v.roll(1, dims=1), torch.ones(2, 3, 4))
    assert result.rho.tolist() == pytest.approx([0.5, 0.5])


def test_residual_measures_convergence() -> None:
    # of two real eigenvalues the larger one overtakes the smaller in the second half of the short run
    close = torch.diag(torch.tensor([1.0, 0.9])).double()
    start = torch.tensor([[1e-3, 1.0]]).double()
    short, long = (spectral_radius(lambda v: v @ close, start, steps=steps) for steps in (100, 1000))
    assert short.rho.item() < 0.99
    assert short.residual.item() > 0.01
    assert long.rho.item() == pytest.approx(1, abs=1e-6)
    assert long.residual.item() < 1e-6
    assert spectral_radius(lambda v: 0 * v, start).residual.item() == 0


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("precision", ["matrices.safetensors", "matrices_f64.safetensors"])
def test_reference_matrices(golden_dir: Path, precision: str, transposed: bool) -> None:
    folder = golden_dir / "spectral_radius"
    expected = json.loads((folder / "case.json").read_text())["matrices"]
    matrices = load_file(folder / precision)
    assert set(matrices) == set(expected)
    for name, matrix in matrices.items():
        rho, result = expected[name]["rho"], radius(matrix, transposed=transposed)[0]
        assert result < 1e-3 if rho == 0 else result == pytest.approx(rho, rel=0.01), name
