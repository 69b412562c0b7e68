"""Optimizers: how gradients become updates.

The trainer sorts the parameters into groups and sets every group's ``lr`` before each step, times the group's
``lr_scale`` where it has one. DeepSpeed shards whatever ``torch.optim.Optimizer`` a rule returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import accumulate, compress
from typing import Annotated, Any, Literal

import torch
import torch.distributed as dist
from annotated_types import Lt
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.registry import Factory, Fraction, register, use

Role = Literal["matrix", "vector", "embedding", "head"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of one role.

    Args:
        name: What the group is called in logs and checkpoints.
        params: The parameters, in the order of the model.
        role: ``matrix`` for two or more dimensions inside of blocks, ``embedding`` and ``head`` for tables of the
            vocabulary and of positions wherever they stand, ``vector`` for all else.
        decay: False where a component has said that weight decay would change what it means.
        names: What each parameter is called in the model; empty where nobody knows.
        stacked: For parameters that hold several matrices one below the other, by identity: the rows of each.
    """

    name: str
    params: list[nn.Parameter]
    role: Role
    decay: bool = True
    names: tuple[str, ...] = ()
    stacked: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class OptimizerRule:
    """How gradients become updates."""

    def build(self, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
        """Make the optimizer.

        Args:
            groups: All trained parameters, each in exactly one group.

        Returns:
            An optimizer whose state holds, for each parameter, tensors of the parameter's shape or scalars: then a
            checkpoint of it can be resumed under another ZeRO stage.
        """
        raise NotImplementedError

    def state_numbers(self, groups: list[ParameterGroup]) -> int:
        """How many numbers the state holds, counters apart: two for each parameter unless a rule says otherwise."""
        return 2 * sum(parameter.numel() for group in groups for parameter in group.params)


@register("optimizer", "adamw", paper="arXiv:1711.05101")
class AdamW(OptimizerRule):
    """Adam with decoupled weight decay, torch's own.

    p ← p - lr · (m̂ / (√v̂ + eps) + weight_decay · p)

    Args:
        weight_decay: Decay per step, times the learning rate.
        decay: Which parameters decay: all, or only those of two or more dimensions.
        betas: Decay of the averages of the gradient and of its square.
        eps: Added to the root of the average square.
    """

    def __init__(
        self,
        *,
        weight_decay: NonNegativeFloat = 0.01,
        decay: Literal["all", "matrices"] = "all",
        betas: tuple[Fraction, Fraction] = (0.9, 0.999),
        eps: PositiveFloat = 1e-8,
    ) -> None:
        self.weight_decay, self.decay, self.eps = weight_decay, decay, eps
        self.betas = (betas[0], betas[1])  # a recipe hands over a list

    def build(self, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
        settings: list[dict[str, Any]] = [
            {"params": group.params, "name": group.name, "weight_decay": self._rate(group)} for group in groups
        ]
        # one pass over the parameters instead of a dozen: 0.12 s instead of 1.4 s for 44M of them on two CPU cores
        fused = all(parameter.device.type in ("cpu", "cuda") for group in groups for parameter in group.params)
        # lr 0: the trainer sets it before every step
        return torch.optim.AdamW(settings, lr=0.0, betas=self.betas, eps=self.eps, fused=fused)

    def _rate(self, group: ParameterGroup) -> float:
        decays = group.decay and (self.decay == "all" or group.role != "vector")
        return self.weight_decay if decays else 0.0


@register("optimizer", "muon", paper="arXiv:2502.16982", needs={"whole_matrices"})
class Muon(OptimizerRule):
    """Momentum made orthogonal for the matrices of the blocks, another optimizer for everything else.

    b ← momentum · b + (1 - momentum) · g,   u = momentum · b + (1 - momentum) · g,
    p ← p - lr · (s · orthogonal(u) + weight_decay · p)

    orthogonal(u) is torch's: a few rounds of a quintic Newton-Schulz iteration in bf16 that bring the singular values
    of u near 1 (0.7 to 1.2), slow on a CPU without bf16 instructions. It takes trained parameters of two dimensions
    with more than one row and column; tables, the head, gains and biases go to ``fallback``.

    Args:
        weight_decay: Decay of the matrices per step, times the learning rate.
        momentum: Share of the average gradient that is kept.
        nesterov: Whether to look ahead, as in u above; otherwise u = b.
        ns_steps: Newton-Schulz iterations, fewer than 100.
        scale: s for n rows and m columns: ``shape`` is sqrt(max(1, n / m)), Jordan's; ``rms`` is 0.2 sqrt(max(n, m)),
            which gives updates the size of AdamW's, so that both share one learning rate (Moonshot's).
        split: Whether matrices that a component keeps in one, as queries, keys and values, are each made orthogonal.
        exclude: Names of matrices, as globs such as ``injection.*``, that ``fallback`` updates as well.
        fallback: Optimizer of all other parameters.
        lr_scales: Factors on the learning rate of the fallback's parameters, by role: embedding, head, vector, matrix.

    Raises:
        ValueError: If a pattern of ``exclude`` matches none of the matrices.

    Paper: Jordan et al., Muon (2024), with the scale of Liu et al. (2025). Under ZeRO 1 and 2, where a rank holds a
    part of every group, ranks gather the momentum, and each makes orthogonal the matrices that it holds a part of.
    """

    def __init__(
        self,
        *,
        weight_decay: NonNegativeFloat = 0.1,
        momentum: Fraction = 0.95,
        nesterov: bool = True,
        ns_steps: Annotated[PositiveInt, Lt(100)] = 5,
        scale: Literal["shape", "rms"] = "rms",
        split: bool = True,
        exclude: list[str] | None = None,
        fallback: Factory[OptimizerRule] = use("adamw"),
        lr_scales: dict[Literal["embedding", "head", "vector", "matrix"], PositiveFloat] | None = None,
    ) -> None:
        self.weight_decay, self.momentum, self.nesterov = weight_decay, momentum, nesterov
        self.ns_steps, self.scale, self.split = ns_steps, scale, split
        self.exclude, self.lr_scales, self.fallback = exclude or [], lr_scales or {}, fallback()

    def build(self, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
        matrices, rest = self._sort(groups)
        settings: list[dict[str, Any]] = [
            {
                "params": group.params,
                "name": group.name,
                "weight_decay": self.weight_decay if group.decay else 0.0,
                "momentum": self.momentum,
                "nesterov": self.nesterov,
                "shapes": [self._shapes(parameter, group) for parameter in group.params],
            }
            for group in matrices
        ]
        others = self.fallback.build(rest) if rest else None
        roles = {id(parameter): group.role for group in rest for parameter in group.params}
        for made in others.param_groups if others else ():
            if (rate := self.lr_scales.get(roles[id(made["params"][0])])) is not None:
                made["lr_scale"] = made.get("lr_scale", 1.0) * rate
        return HybridMuon(settings, others, ns_steps=self.ns_steps, scale=self.scale)

    def state_numbers(self, groups: list[ParameterGroup]) -> int:
        matrices, rest = self._sort(groups)
        return sum(p.numel() for group in matrices for p in group.params) + self.fallback.state_numbers(rest)

    def _sort(self, groups: list[ParameterGroup]) -> tuple[list[ParameterGroup], list[ParameterGroup]]:
        """The groups of matrices, and those of everything else; none is empty."""
        known = [name for group in groups if group.role == "matrix" for name in group.names]
        for pattern in self.exclude:
            if not any(fnmatchcase(name, pattern) for name in known):
                some = ", ".join(known[:3])
                raise UserError(f"train.optimizer.exclude: no matrix matches {pattern!r}; there are {some}, ...")
        mine = [[self._takes(group, n) for n in range(len(group.params))] for group in groups]
        theirs = [[not taken for taken in flags] for flags in mine]
        return _parts(groups, mine), _parts(groups, theirs)

    def _takes(self, group: ParameterGroup, index: int) -> bool:
        shape = group.params[index].shape
        spared = group.names and any(fnmatchcase(group.names[index], pattern) for pattern in self.exclude)
        return group.role == "matrix" and len(shape) == 2 and min(shape) > 1 and not spared

    def _shapes(self, parameter: nn.Parameter, group: ParameterGroup) -> list[tuple[int, int]]:
        rows, columns = parameter.shape
        stacked = group.stacked.get(id(parameter), (rows,)) if self.split else (rows,)
        return [(part, columns) for part in stacked]


def _parts(groups: list[ParameterGroup], flags: list[list[bool]]) -> list[ParameterGroup]:
    """Of each group the flagged parameters, where there are any."""
    return [
        replace(group, params=list(compress(group.params, kept)), names=tuple(compress(group.names, kept)))
        for group, kept in zip(groups, flags, strict=True)
        if any(kept)
    ]


class HybridMuon(torch.optim.Optimizer):
    """Groups with ``shapes`` are matrices for Muon; another optimizer steps the rest, on the state of this one.

    ZeRO 1 and 2 replace the parameters of a group by this rank's part of them, laid end to end in one flat tensor.

    Args:
        matrices: Groups with ``shapes``: for each parameter the rows and columns of the matrices in it, top to bottom.
        others: Over everything else; its groups become groups of this optimizer. ``None``: there is nothing else.
        ns_steps: Newton-Schulz iterations.
        scale: ``shape`` or ``rms``.
    """

    def __init__(
        self, matrices: list[dict[str, Any]], others: torch.optim.Optimizer | None, *, ns_steps: int, scale: str
    ) -> None:
        self.others, self.ns_steps = others, ns_steps
        self.adjust = {"shape": "original", "rms": "match_rms_adamw"}[scale]
        super().__init__([*matrices, *(others.param_groups if others else [])], {"lr": 0.0})
        self.defaults = {**(others.defaults if others else {}), **self.defaults}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every group there is: ZeRO hands over one at a time."""
        rest = [group for group in self.param_groups if "shapes" not in group]
        if self.others is not None and rest:
            self.others.param_groups, self.others.state = rest, self.state
            self.others.step()
        for group in self.param_groups:
            if "shapes" in group:
                for index, parameter in enumerate(group["params"]):
                    if parameter.grad is not None:
                        self._update(group, index, parameter, parameter.grad)

    def _update(self, group: dict[str, Any], index: int, parameter: Tensor, gradient: Tensor) -> None:
        state, momentum = self.state[parameter], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter, requires_grad=False)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        wanted = gradient.lerp(average, momentum) if group["nesterov"] else average
        if parameter.dim() == 2:
            parts = wanted.split([rows for rows, _ in group["shapes"][index]])
            direction = torch.cat(self._orthogonal(parts))
        else:
            direction = self._flat([shape for shapes in group["shapes"] for shape in shapes], wanted)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=group["lr"])

    def _flat(self, shapes: Sequence[tuple[int, int]], wanted: Tensor) -> Tensor:
        """The directions of one rank's part of a flat group, from all parts of it."""
        whole, first = _gather(wanted)
        direction, end = torch.zeros_like(wanted), first + wanted.numel()
        places = list(accumulate((rows * columns for rows, columns in shapes), initial=0))
        for (rows, columns), place in zip(shapes, places, strict=False):
            size = rows * columns
            low, high = max(place, first), min(place + size, end)
            if low < high:
                (made,) = self._orthogonal([whole[place : place + size].view(rows, columns)])
                direction[low - first : high - first] = made.flatten()[low - place : high - place]
        return direction

    def _orthogonal(self, matrices: Sequence[Tensor]) -> list[Tensor]:
        """-s * orthogonal(matrix) of each, in fp32: where torch's Muon takes a matrix of zeros with that gradient."""
        targets = [nn.Parameter(torch.zeros_like(matrix, dtype=torch.float32)) for matrix in matrices]
        for target, matrix in zip(targets, matrices, strict=True):
            target.grad = matrix.to(torch.float32)
        torch.optim.Muon(
            targets,
            lr=1.0,
            weight_decay=0.0,
            momentum=0.0,
            nesterov=False,
            ns_steps=self.ns_steps,
            adjust_lr_fn=self.adjust,
        ).step()
        return [target.detach() for target in targets]


def _gather(part: Tensor) -> tuple[Tensor, int]:
    """The parts of all ranks end to end, in bf16 as the iteration takes them, and where this rank's part begins."""
    narrow = part.to(torch.bfloat16)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return narrow, 0
    if dist.get_backend() == "nccl":  # parts that are offloaded lie on the CPU
        narrow = narrow.to(torch.device("cuda", torch.cuda.current_device()))
    whole = narrow.new_empty(dist.get_world_size() * narrow.numel())
    dist.all_gather_into_tensor(whole, narrow)
    return whole, dist.get_rank() * narrow.numel()
