"""The module that DeepSpeed wraps: model and objective, from a batch to a loss and detached metrics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from loopkit.loop import PAD, Batch, Loops, Trajectory
from loopkit.model import LoopedModel
from loopkit.objective import Objective
from loopkit.training.step.metrics import MicroStepMetrics


class TrainingModule(nn.Module):
    """Model and objective under the precision of the recipe.

    Args:
        model: The looped model; its parameters are fp32.
        objective: Computes the loss of a trajectory.
        seed: The run's seed, which keys noise inside the model.
        precision: ``bf16_autocast`` multiplies matrices in bf16 and keeps parameters, norms and the residual stream in
            fp32: a state norm of 10⁴ does not survive bf16. ``fp32`` computes everything in fp32.
    """

    def __init__(
        self, model: LoopedModel, objective: Objective, *, seed: int, precision: Literal["bf16_autocast", "fp32"]
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.seed = seed
        self.autocast = precision == "bf16_autocast"

    def forward(
        self, batch: Batch, loops: Loops, optimizer_step: int, share: float, token_share: float = 1.0
    ) -> tuple[Tensor, MicroStepMetrics]:
        """Run the forward pass of one micro-step.

        Args:
            batch: Sequences of this micro-step, on the device of the module.
            loops: Their loops.
            optimizer_step: Finished optimizer steps.
            share: Scored tokens of this micro-step times the number of micro-steps over all ranks, divided by the
                scored tokens of the step; unequal micro-steps then add up to the gradient of the whole batch.
            token_share: The same ratio of real tokens.

        Returns:
            The loss, an fp32 scalar, and the metrics.
        """
        with torch.autocast(batch.device.type, dtype=torch.bfloat16) if self.autocast else nullcontext():
            trajectory = self.model.run(batch, loops, noise_key=(self.seed, optimizer_step))
            outcome = self.objective(trajectory, optimizer_step, share, token_share)
        metrics = {"loss": outcome.loss}
        metrics |= {f"ce/{k}": value for k, value in outcome.ce.items()}
        metrics |= {f"regularizers/{name}": value for name, value in outcome.regularizers.items()}
        metrics |= {f"terms/{name}": value for name, value in outcome.terms.items()}
        with torch.no_grad():
            norms = state_norms(trajectory)
            if self.model.stops:
                metrics |= counts_by_loop(trajectory)
            values = torch.stack([value.detach().float() for value in metrics.values()])
            names = (*metrics, *(f"state_norm/{k}" for k in range(1, loops.total + 1)))
            return outcome.loss, MicroStepMetrics(names, torch.cat([values, norms]))


def state_norms(trajectory: Trajectory) -> Tensor:
    """Mean Euclidean norm of the state after each loop, over the real tokens of sequences that ran it: ``[K]`` fp32."""
    real_BT = trajectory.batch.positions < PAD
    norms = []
    for k in range(1, trajectory.loops.total + 1):
        norm = torch.linalg.vector_norm(trajectory.state(k), dim=-1, dtype=torch.float32)  # [B,T,*S]
        ran_B1 = trajectory.active(k)
        counted_BT = real_BT if ran_B1 is None else real_BT & ran_B1.view(-1, 1)
        norm_BT = norm.flatten(2).mean(-1) if norm.dim() > 2 else norm
        norms.append((norm_BT * counted_BT).sum() / counted_BT.sum().clamp(min=1))
    return torch.stack(norms)


def counts_by_loop(trajectory: Trajectory) -> dict[str, Tensor]:
    """Mean number of loops of a sequence, and the real and scored tokens of the sequences that ran each loop."""
    batch, total = trajectory.batch, trajectory.loops.total
    depth_B = torch.full((len(batch),), total) if trajectory.depth is None else trajectory.depth
    metrics = {"depth": depth_B.float().mean()}
    for k in range(1, total + 1):
        ran_B = trajectory.active(k)
        ran_B1 = torch.ones_like(batch.scored[:, :1]) if ran_B is None else ran_B[:, None]
        metrics[f"tokens/{k}"] = ((batch.positions < PAD) & ran_B1).sum()
        metrics[f"scored/{k}"] = (batch.scored & ran_B1).sum()
    return {name: value.to(batch.device) for name, value in metrics.items()}
