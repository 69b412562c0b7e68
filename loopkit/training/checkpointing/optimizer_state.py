"""Optimizer state in one format for every ZeRO stage: ``parameter/key``, full tensors on the CPU.

A checkpoint in this format can be resumed under another ZeRO stage and on another number of ranks, and is read without
unpickling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.training.step.engine import Engine
from loopkit.training.step.sharded import part_of

SEPARATOR = "/"


def _parameter_names(module: nn.Module) -> dict[int, str]:
    """Names of the trained parameters by ``id``."""
    return {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}


def _scalars(module: nn.Module) -> set[str]:
    """Names of the scalar parameters; under ZeRO-3 ``parameter.shape`` is the shape of its shard."""
    return {name for name, value in module.named_parameters() if not len(getattr(value, "ds_shape", value.shape))}


def gather_optimizer_state(engine: Engine) -> dict[str, Tensor]:
    """Gather the full optimizer state on every rank; all ranks must call this together."""
    names = _parameter_names(engine.module)
    gathered: dict[str, Tensor] = {}
    if engine.stage == 0:
        for parameter, state in engine.deepspeed.optimizer.state.items():
            for key, value in state.items():
                gathered[names[id(parameter)] + SEPARATOR + key] = torch.as_tensor(value).detach().cpu().clone()
        return gathered
    from deepspeed.utils import safe_get_full_optimizer_state

    for parameters, flat in _shards(engine):
        _link(engine, parameters, flat)
        for key, value in _inner(engine).state.get(flat, {}).items():
            for parameter in parameters:
                full = value if value.dim() == 0 else safe_get_full_optimizer_state(parameter, key)
                gathered[names[id(parameter)] + SEPARATOR + key] = full.detach().cpu().clone()
    return gathered


def load_optimizer_state(engine: Engine, gathered: Mapping[str, Tensor]) -> None:
    """Load the result of ``gather_optimizer_state`` under any ZeRO stage.

    Raises:
        UserError: If the names differ from those of the trained parameters.
    """
    if not gathered:  # saved before the first update
        return
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for label, value in gathered.items():
        name, _, key = label.rpartition(SEPARATOR)
        by_parameter.setdefault(name, {})[key] = value
    names = _parameter_names(engine.module)
    saved, trained = set(by_parameter), set(names.values())
    if saved != trained:
        shown = ", ".join([*sorted(saved - trained), *sorted(trained - saved)][:5])
        raise UserError(
            f"the checkpoint's optimizer state does not match the trained parameters: {shown}; "
            "resume with the model that it was trained with, or take its weights alone with train.start_from"
        )
    if engine.stage == 0:
        _load(engine.deepspeed.optimizer, lambda parameter: by_parameter[names[id(parameter)]])
        return
    counters = _counters(by_parameter, _scalars(engine.module))
    for parameters, flat in _shards(engine):
        # allocate the flat state, then copy each parameter's part into it
        template = by_parameter[names[id(parameters[0])]]
        _inner(engine).state[flat] = {
            key: _flat(_inner(engine), value, flat, counter=key in counters) for key, value in template.items()
        }
        _link(engine, parameters, flat)
        for parameter in parameters:
            for key, value in by_parameter[names[id(parameter)]].items():
                if key not in counters:
                    _set(engine, parameter, key, value)


@contextmanager
def gathered_parameters(engine: Engine) -> Iterator[None]:
    """Gather the parameters that ZeRO-3 shards, inside the block."""
    if engine.stage < 3:
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        yield


def _load(optimizer: torch.optim.Optimizer, state_of: Callable[[Tensor], dict[str, Tensor]]) -> None:
    """Load the state with torch's loader, which places counters on the right device."""
    flat = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    packed = optimizer.state_dict()["param_groups"]
    state = {index: dict(state_of(parameter)) for index, parameter in enumerate(flat)}
    optimizer.load_state_dict({"state": state, "param_groups": packed})


def _counters(by_parameter: Mapping[str, Mapping[str, Tensor]], scalars: set[str]) -> set[str]:
    """Keys whose value is one number per parameter, such as the number of updates.

    The shape decides if a parameter with dimensions has the key, else the name that torch gives to counters.

    Args:
        by_parameter: The state of each parameter.
        scalars: Names of the scalar parameters.
    """
    shapes = [(name, key, value.dim()) for name, state in by_parameter.items() for key, value in state.items()]
    decided = {key for name, key, _ in shapes if name not in scalars}
    counters = {key for name, key, dim in shapes if name not in scalars and dim == 0}
    return counters | {key for _, key, _ in shapes if key not in decided and key == "step"}


def _flat(optimizer: torch.optim.Optimizer, value: Tensor, flat: Tensor, *, counter: bool) -> Tensor:
    """Initial state of a flat partition: zeros, or the counter on the device where this optimizer keeps it."""
    if not counter:
        return torch.zeros_like(flat, requires_grad=False)
    on_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
    return value.to(flat.device if on_device else "cpu").clone()


def _inner(engine: Engine) -> torch.optim.Optimizer:
    """The torch optimizer inside ZeRO's."""
    inner: torch.optim.Optimizer = engine.deepspeed.optimizer.optimizer
    return inner


def _shards(engine: Engine) -> Iterator[tuple[list[nn.Parameter], Tensor]]:
    """The parameters of each flat ZeRO partition, and the partition."""
    zero = engine.deepspeed.optimizer
    if engine.stage == 3:
        yield from zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True)
    else:
        yield from zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True)


def _link(engine: Engine, parameters: list[nn.Parameter], flat: Tensor) -> None:
    """Map each parameter to its part of a flat state; ZeRO 1 and 2 do so once, possibly before the state exists."""
    if engine.stage < 3:
        from deepspeed.utils import lazy_init_hp_params_optimizer_state

        lazy_init_hp_params_optimizer_state(parameters, flat, _inner(engine).state)


def _set(engine: Engine, parameter: nn.Parameter, key: str, value: Tensor) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    if engine.stage < 3:
        safe_set_full_optimizer_state(parameter, value.to(parameter.device), key)
        return
    safe_set_local_optimizer_state(parameter, part_of(value, parameter).to(parameter.device), key)
