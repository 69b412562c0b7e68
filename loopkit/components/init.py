"""The first weights."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.registry import register


@dataclass(frozen=True)
class InitContext:
    """Sizes of the model that an init fills.

    Args:
        width: Channels of the stream.
        num_layers: Blocks that one loop of the core applies.
        once_layers: Blocks of prelude and coda.
        max_loops: Maximum number of loops that the recipe's schedule draws.
        mean_loops: Mean number of loops of the schedule.
    """

    width: int
    num_layers: int = 0
    once_layers: int = 0
    max_loops: int = 1
    mean_loops: float = 1.0

    @property
    def effective_depth(self) -> float:
        """Mean number of blocks that a token passes: those of prelude and coda, and those of every loop."""
        return self.once_layers + self.num_layers * self.mean_loops


class Init:
    """Fills a whole model: the weights and biases of every ``nn.Linear`` and ``nn.Embedding``.

    Everything else is a constant that the module sets itself in ``reset_parameters()``, which runs last, children
    first, so a component may also overrule what was drawn for its matrices. Each module draws from a stream of its own,
    keyed by the seed and its name: two models that differ in one component agree in all other weights, on every device.
    Shared parameters are filled once, under their first name.
    """

    def __call__(self, model: nn.Module, scale: InitContext, generator: torch.Generator) -> None:
        """Fill the model in place.

        Args:
            model: The model; on a real device.
            scale: Its sizes.
            generator: On the CPU; its initial seed keys all draws.

        Raises:
            UserError: If a module owns parameters or buffers that nothing sets.
        """
        seed = generator.initial_seed()
        filled: set[int] = set()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for name, module in model.named_modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    generator.manual_seed(_key(seed, name))
                    for part, parameter in module.named_parameters(recurse=False):
                        if id(parameter) not in filled:
                            parameter.copy_(self.draw(name, module, part, parameter.shape, scale, generator))
                            filled.add(id(parameter))
            for name, module in reversed(list(model.named_modules())):
                if not isinstance(module, nn.Linear | nn.Embedding):
                    _reset(name, module, seed)

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        """Return the first values of a parameter, fp32 on the CPU.

        Args:
            name: Name of the module in the model, such as ``core.blocks.0.attention.out``. The matrices of an attention
                are ``qkv`` and ``out``, or those of its ``roles()``; of an MLP ``up``, ``gate`` and ``out``.
            module: An ``nn.Linear`` or ``nn.Embedding``.
            part: ``weight`` or ``bias``.
            shape: Shape of the parameter; of a matrix ``[outputs, inputs]``.
            scale: Sizes of the model.
            generator: Source of random numbers, seeded for this module.
        """
        raise NotImplementedError


def _key(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1


def _seed_generators(seed: int) -> None:
    """Seed the CPU's generator, and the GPU's once CUDA is in use.

    ``torch.manual_seed`` also queues a call, with a formatted stack trace, for each backend that is not in use.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _reset(name: str, module: nn.Module, seed: int) -> None:
    reset = getattr(module, "reset_parameters", None)
    if reset is not None:
        _seed_generators(_key(seed, name))
        reset()
    elif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
        raise UserError(
            f"{type(module).__name__} at '{name}' owns parameters or buffers, but has no reset_parameters() to set them"
        )


@register("init", "torch_default", paper="arXiv:2606.24898")
class TorchDefault(Init):
    """What PyTorch's layers have when they are made.

    tables N(0, 1);   matrices and biases of n inputs U(-1/sqrt(n), 1/sqrt(n))

    With a tied head, logits start at a standard deviation of about sqrt(2 * width): a loss of 27 before training is no
    fault.
    """

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        if isinstance(module, nn.Embedding):
            return torch.empty(shape).normal_(generator=generator)
        assert isinstance(module, nn.Linear)
        bound = 1 / math.sqrt(module.in_features)
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)


@register("init", "normal", paper="arXiv:1810.04805")
class NormalInit(Init):
    """One Gaussian for all tables and matrices; biases are zero.

    W ~ N(0, std²)

    Args:
        std: Standard deviation, > 0.
    """

    def __init__(self, *, std: PositiveFloat = 0.02) -> None:
        self.std = std

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        if part == "bias":
            return torch.zeros(shape)
        return torch.empty(shape).normal_(std=self.std, generator=generator)


@register("init", "scaled", paper="arXiv:2502.05171")
class ScaledInit(Init):
    """Gaussians that shrink with the width, and for projections back into the stream (``out``) also with the depth.

    W ~ N(0, 2 / (5 width)),   W_out ~ N(0, 2 / (5 width) / (2 depth))

    Args:
        std: Standard deviation of all but ``out``, > 0. ``None``: sqrt(2 / (5 width)).
        depth: Blocks that a token passes, > 0. ``None``: the blocks of prelude and coda, plus those of the core times
            the mean number of loops.
    """

    def __init__(self, *, std: PositiveFloat | None = None, depth: PositiveFloat | None = None) -> None:
        self.std = std
        self.depth = depth

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        if part == "bias":
            return torch.zeros(shape)
        std = math.sqrt(2 / (5 * scale.width)) if self.std is None else self.std
        if name.rpartition(".")[2] == "out":
            std /= math.sqrt(2 * (scale.effective_depth if self.depth is None else self.depth))
        return torch.empty(shape).normal_(std=std, generator=generator)


@register("init", "deepnorm", paper="arXiv:2203.00555")
class DeepNormInit(Init):
    """Xavier's Gaussians, smaller for the residual branches of the core, to be used with placement deepnorm.

    W ~ N(0, gain² * 2 / (inputs + outputs)),   gain = (8 * num_layers * max_loops)^(-1/4) in the core for v, o and the
    matrices of the MLP;   gain = 1 for all others; biases are zero

    Paper: Its formula for models with an encoder or a decoder alone, whose depth is here that of the unrolled loop.
    """

    def __call__(self, model: nn.Module, scale: InitContext, generator: torch.Generator) -> None:
        super().__call__(model, scale, generator)
        gain = max(8 * scale.num_layers * scale.max_loops, 1) ** -0.25
        with torch.no_grad():
            for name, module in model.named_modules():
                roles = module.roles() if hasattr(module, "roles") else {}
                for role, (matrix, rows) in roles.items():
                    weight = matrix.weight[rows]
                    # drawn for the stacked matrix; each of its parts has outputs of its own
                    std = _xavier_std(weight.shape) * (gain if name.startswith("core.") and role not in "qk" else 1.0)
                    weight.mul_(std / _xavier_std(matrix.weight.shape))

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        if part == "bias":
            return torch.zeros(shape)
        return torch.empty(shape).normal_(std=_xavier_std(shape), generator=generator)


def _xavier_std(shape: torch.Size) -> float:
    """Standard deviation that keeps the variance of values and gradients through a matrix ``[outputs, inputs]``."""
    return math.sqrt(2 / sum(shape))
