"""The DeepSpeed engine: micro-steps, gradient norm, update or skip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed import all_reduce
from torch.nn.utils import get_total_norm
from torch.overrides import TorchFunctionMode

from loopkit.loop import Batch, Loops
from loopkit.loop.tally import clear_tallies, update_buffers
from loopkit.training.distributed.deepspeed_import import deepspeed, silence_warnings
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.metrics import MicroStepMetrics
from loopkit.training.step.module import TrainingModule


class Engine:
    """A DeepSpeed engine around model and objective.

    Args:
        module: Model and objective, with the weights of the first step.
        optimizer: Built from the module's trained parameters.
        config: A complete DeepSpeed configuration.
        process: This rank, and its device.
        verbose: Show DeepSpeed's own messages.
    """

    def __init__(
        self,
        module: TrainingModule,
        optimizer: torch.optim.Optimizer,
        config: dict[str, Any],
        process: Process,
        *,
        verbose: bool = False,
    ) -> None:
        if not verbose:
            silence_warnings()
        for parameter in module.parameters():
            if parameter.requires_grad:  # before DeepSpeed's own hooks, which read the gradient
                parameter.register_post_accumulate_grad_hook(_define_gradient)
        initialize = deepspeed(process.device, verbose).initialize
        with _ScalarsAsVectors():
            self.deepspeed = initialize(model=module, optimizer=optimizer, config=config, dist_init_required=False)[0]
        if any(parameter.dim() == 0 for parameter in module.parameters()):
            self.deepspeed.clip_fp32_gradients = _ScalarsAsVectors.around(self.deepspeed.clip_fp32_gradients)
        self.module = module
        self.process = process
        self.stage: int = int(config["zero_optimization"]["stage"])
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        # on a single rank DeepSpeed would copy every gradient three times for an all-reduce without effect
        self._skip_allreduce = process.world == 1 and self.stage == 0
        self.deepspeed.enable_backward_allreduce = not self._skip_allreduce

    def micro_step(
        self, batch: Batch, loops: Loops, optimizer_step: int, share: float, token_share: float = 1.0
    ) -> MicroStepMetrics:
        """Run forward and backward of a micro-step; gradients accumulate until ``update``."""
        loss, metrics = self.deepspeed(batch, loops, optimizer_step, share, token_share)
        self.deepspeed.backward(loss)
        return metrics

    def next_micro_step(self) -> None:
        """Finish a micro-step that is not the last of its step."""
        assert not self.deepspeed.is_gradient_accumulation_boundary(), "the last micro-step ends with update()"
        self.deepspeed.step()

    def grad_norm(self) -> Tensor | None:
        """Global norm of the gradient before clipping, on the device; None under ZeRO, where ``update`` returns it."""
        if self.stage > 0:
            return None
        return get_total_norm([parameter.grad for parameter in self.trained if parameter.grad is not None])

    def update(self, lr: float) -> float | None:
        """Clip, step the optimizer, clear the gradients, and update the buffers.

        Args:
            lr: Learning rate; a group's ``lr_scale`` multiplies it.

        Returns:
            Global norm of the gradient before clipping under ZeRO, else None. If it is not finite, ZeRO does not update
            the weights.
        """
        assert self.deepspeed.is_gradient_accumulation_boundary(), "update() before the last micro-step"
        if self._skip_allreduce:
            self._fill_missing_gradients()
        for group in self.deepspeed.optimizer.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)
        self.deepspeed.step()
        norm = None if self.stage == 0 else self.deepspeed.get_global_grad_norm()
        if norm is not None and not math.isfinite(norm):
            clear_tallies(self.module)
        else:
            update_buffers(self.module, None if self.process.world == 1 else all_reduce)
        return None if norm is None else float(norm)

    def skip(self) -> None:
        """End the step without an update: drop the gradients, keep weights and optimizer state."""
        assert self.deepspeed.is_gradient_accumulation_boundary(), "skip() before the last micro-step"
        clear_tallies(self.module)
        optimizer = self.deepspeed.optimizer
        # ZeRO drops a step if the gradient norm is not finite; torch's optimizers do not
        name, replacement = {
            0: ("step", lambda: None),
            3: ("_get_norm_groups", lambda: [math.inf]),
        }.get(self.stage, ("scaled_global_norm", lambda: math.inf))
        setattr(optimizer, name, replacement)
        try:
            self.deepspeed.step()
        finally:
            delattr(optimizer, name)

    def close(self) -> None:
        """Release the memory of the engine."""
        self.deepspeed.destroy()

    def _fill_missing_gradients(self) -> None:
        """Set missing gradients to zero, as the all-reduce of several ranks does: the update must not depend on the
        number of ranks."""
        for parameter in self.trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


class _ScalarsAsVectors(TorchFunctionMode):
    """Run DeepSpeed's code on scalar parameters as if they had one dimension.

    DeepSpeed 0.19.8 broadcasts ``parameter.data.view(torch.uint8)``, at a different point in every stage, and clips
    with ``grad.mul_(factor)``, whose factor has shape ``[1]``. torch rejects both for a scalar; a view with one
    dimension shares its memory.
    """

    @classmethod
    def around(cls, function: Callable[[], None]) -> Callable[[], None]:
        """Wrap a function to run in this mode."""

        def wrapped() -> None:
            with cls():
                function()

        return wrapped

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.view and args[0].dim() == 0 and args[1:] == (torch.uint8,):
            return args[0].reshape(1).view(torch.uint8)
        if func is torch.Tensor.mul_ and args[0].dim() == 0:
            args[0].reshape(1).mul_(args[1])
            return args[0]
        return func(*args, **(kwargs or {}))


def _define_gradient(parameter: Tensor) -> None:
    """Give a parameter that a backward pass reached without a gradient one of zeros.

    Autograd does so where a derivative vanishes identically, as in a regularizer that is differentiated twice; ZeRO 2
    fails on it.
    """
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
