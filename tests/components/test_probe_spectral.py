"""The probes of a loop's stability on loops whose behaviour is known."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor, nn

from loopkit.components.core import Core
from loopkit.components.probe.spectral import Spectral, loop_radius
from loopkit.components.probe.trajectory import TrajectoryProbe, principal_plane
from loopkit.loop import PAD, Batch, Loops, Step
from tests.model.tiny import batch, tiny

TURN = [[math.cos(0.5), -math.sin(0.5)], [math.sin(0.5), math.cos(0.5)]]


class Linear(Core):
    """c' = b + A (c - b) in the first two channels of each token, the others are halved."""

    def __init__(self, matrix: list[list[float]], centre: float = 0.0) -> None:
        super().__init__()
        a = 0.5 * torch.eye(16, dtype=torch.float64)
        a[:2, :2] = torch.tensor(matrix, dtype=torch.float64)
        self.a, self.centre = nn.Parameter(a), centre

    def forward(self, u: Tensor, step: Step) -> Tensor:
        return self.centre + (u - self.centre) @ self.a.T


def with_core(core: Core):
    model = tiny(dtype=torch.float64)
    model.core = core
    return model


def test_radius_by_depth_sequence_and_position() -> None:
    model = with_core(Linear([[0.9 * x for x in row] for row in TURN]))
    for by in ("sequence", "position"):
        probe = Spectral(by=by, sequences=2)  # type: ignore[arg-type]
        probe.run(model, [batch(3)], [1, 5])
        result = probe.result().by_depth["spectral_radius"]
        for depth in (1, 5):
            assert result[depth] == pytest.approx({"mean": 0.9, "max": 0.9, "residual": 0.0}, abs=1e-9)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_sequence_radius_is_maximum_over_positions() -> None:
    model = tiny(width=8, core=1, dtype=torch.float64)
    data = batch(2, 5)
    places = data.positions.clone()
    places[1, 3:] = PAD
    t = model.run(Batch(data.tokens, data.labels, places, data.sample), Loops.fixed(2))
    by_position = loop_radius(t, by="position", steps=400)
    assert by_position.rho[1].isnan().tolist() == [False, False, False, True, True]
    by_sequence = loop_radius(t, steps=2000).rho
    assert by_sequence.tolist() == pytest.approx(by_position.rho.nan_to_num(0).amax(1).tolist(), rel=0.01)
    # exactly, position by position
    c = t.carried(2).detach()
    jacobian = torch.autograd.functional.jacobian(t.step, c)
    for row, position in ((0, 0), (0, 4), (1, 2)):
        exact = torch.linalg.eigvals(jacobian[row, position, :, row, position]).abs().max().item()
        assert by_position.rho[row, position].item() == pytest.approx(exact, rel=0.01)


def test_length_and_depth_limits() -> None:
    model, seen = tiny(width=8, core=1), []
    handle = model.core.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    probe = Spectral(sequences=2, length=3, steps=4, depths=[2, 7])
    probe.run(model, [batch(3)], [1, 2, 3])
    assert set(probe.result().by_depth["spectral_radius"]) == {2}
    handle.remove()
    assert set(seen) == {(2, 3, 8)}
    with pytest.raises(ValueError, match="at least 4"):
        Spectral(steps=3)


def test_contraction_converges_along_a_line() -> None:
    model = with_core(Linear([[0.5, 0.0], [0.0, 0.5]], centre=2.0))
    probe = TrajectoryProbe(loops=40, sequences=2)
    probe.run(model, [batch(3)], [1, 8, 64])
    result = probe.result()
    table = result.tables["trajectory"]
    ratios = [b / a for a, b in zip(table["distance"][:20], table["distance"][1:21], strict=True)]
    assert ratios == pytest.approx([0.5] * 20, rel=1e-3)
    assert table["step"][1:21] == pytest.approx([d / 2 for d in table["distance"][:20]], rel=1e-3)
    assert table["explained"] == pytest.approx([1.0, 0.0], abs=1e-9)
    assert set(result.by_depth["step_length"]) == {1, 8}
    json.dumps(table, allow_nan=False)


def test_rotation_is_a_limit_cycle() -> None:
    model = with_core(Linear(TURN))
    probe = TrajectoryProbe(loops=60, sequences=1)
    probe.run(model, [batch(1)], [1])
    table = probe.result().tables["trajectory"]
    assert max(table["distance"][20:60]) > 0.5
    assert min(table["step"][20:61]) == pytest.approx(max(table["step"][20:61]), rel=1e-3)
    assert sum(table["explained"]) > 0.9


def test_nonfinite_states_are_counted() -> None:
    model = with_core(Linear([[1e30, 0.0], [0.0, 1e30]]))  # past what fp64 can hold after eleven loops
    path, radius = TrajectoryProbe(loops=20, sequences=2), Spectral(sequences=2, steps=8, by="position")
    for probe in (path, radius):
        probe.run(model, [batch(2)], [1, 20])
    assert path.result().tables == {"trajectory_not_finite": 2}
    rows = radius.result().by_depth["spectral_radius"]
    assert rows[1]["max"] == pytest.approx(1e30, rel=1e-6)

    class Lost(Linear):
        def forward(self, u: Tensor, step: Step) -> Tensor:
            return super().forward(u, step) * torch.where(step.positions == 3, math.nan, 1.0)[..., None]

    radius = Spectral(sequences=1, steps=8, by="position")
    radius.run(with_core(Lost(TURN)), [batch(1)], [1])
    assert math.isnan(radius.result().by_depth["spectral_radius"][1]["max"])


def test_principal_plane_preserves_planar_distances() -> None:
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(9, 2, generator=generator).double()
    basis = torch.linalg.qr(torch.randn(30, 2, generator=generator).double()).Q
    points, shares = principal_plane(flat @ basis.T + 3.0)
    torch.testing.assert_close(torch.cdist(points, points), torch.cdist(flat, flat))
    assert sum(shares) == pytest.approx(1)
    assert (points[0] >= 0).all()


def test_constant_state_has_no_distance() -> None:
    points, shares = principal_plane(torch.ones(4, 7, dtype=torch.float64))
    assert points.abs().max() == 0
    assert shares == [0, 0]
