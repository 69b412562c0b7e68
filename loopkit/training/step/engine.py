"""The DeepSpeed engine as the trainer uses it: micro-steps, one read of the metrics, one update."""

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
        module: What is trained; its parameters are already those of the first step.
        optimizer: Made of the module's trained parameters.
        config: A complete DeepSpeed configuration.
        process: Which rank this is, and its device.
        verbose: Let DeepSpeed speak.
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
        # alone there is nobody to average with, but DeepSpeed would copy every gradient three times to do so
        self._alone = process.world == 1 and self.stage == 0
        self.deepspeed.enable_backward_allreduce = not self._alone

    def micro_step(
        self, batch: Batch, loops: Loops, optimizer_step: int, share: float, token_share: float = 1.0
    ) -> MicroStepMetrics:
        """Forward and the one backward of a micro-step; gradients add up until ``update``."""
        loss, measured = self.deepspeed(batch, loops, optimizer_step, share, token_share)
        self.deepspeed.backward(loss)
        return measured

    def next_micro_step(self) -> None:
        """Tell DeepSpeed that a micro-step which is not the last of its step is over."""
        assert not self.deepspeed.is_gradient_accumulation_boundary(), "the last micro-step ends with update()"
        self.deepspeed.step()

    def grad_norm(self) -> Tensor | None:
        """Global norm of the gradient before clipping, on the device; None under ZeRO 1 - 3, where ``update`` tells."""
        if self.stage > 0:
            return None
        return get_total_norm([parameter.grad for parameter in self.trained if parameter.grad is not None])

    def update(self, lr: float) -> float | None:
        """Clip, step the optimizer, clear the gradients, and set the buffers that follow the data.

        Args:
            lr: Learning rate; a group's ``lr_scale`` multiplies it.

        Returns:
            Global norm of the gradient before clipping where ``grad_norm`` could not tell, else None. ZeRO leaves the
            weights as they are if it is not finite.
        """
        assert self.deepspeed.is_gradient_accumulation_boundary(), "update() before the last micro-step"
        if self._alone:
            self._fill_missing()
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
        """End the step without an update: its gradients are dropped, weights and optimizer stay as they are."""
        assert self.deepspeed.is_gradient_accumulation_boundary(), "skip() before the last micro-step"
        clear_tallies(self.module)
        optimizer = self.deepspeed.optimizer
        # ZeRO drops a step of its own accord when the gradient has no finite norm; torch's optimizers do not
        name, stand_in = {
            0: ("step", lambda: None),
            3: ("_get_norm_groups", lambda: [math.inf]),
        }.get(self.stage, ("scaled_global_norm", lambda: math.inf))
        setattr(optimizer, name, stand_in)
        try:
            self.deepspeed.step()
        finally:
            delattr(optimizer, name)

    def close(self) -> None:
        """Give the memory back before another engine is made."""
        self.deepspeed.destroy()

    def _fill_missing(self) -> None:
        """A parameter that no loop used gets a gradient of zero, as it does where ranks average: the update must not
        depend on how many there are."""
        for parameter in self.trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


class _ScalarsAsVectors(TorchFunctionMode):
    """Run DeepSpeed's code on parameters without dimensions as if they had one.

    DeepSpeed 0.19.8 broadcasts ``parameter.data.view(torch.uint8)``, in another place on every stage, and clips with
    ``grad.mul_(factor)``, whose factor has the shape ``[1]``. torch refuses both for a scalar; a view of one dimension
    shares its memory.
    """

    @classmethod
    def around(cls, function: Callable[[], None]) -> Callable[[], None]:
        """The function, run in this mode."""

        def inside() -> None:
            with cls():
                function()

        return inside

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
