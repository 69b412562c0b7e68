"""Optimizer state in one form for every ZeRO stage: ``parameter/key``, whole tensors, on the CPU.

A checkpoint in this form can be resumed under another stage and by another number of ranks, and is read without
unpickling anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.training.step.engine import Engine

SEPARATOR = "/"


def names_of(module: nn.Module) -> dict[int, str]:
    """Name of each trained parameter by identity."""
    return {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}


def _scalars(module: nn.Module) -> set[str]:
    """Names of the parameters without dimensions; under ZeRO-3 a parameter's own shape is that of its part."""
    return {name for name, value in module.named_parameters() if not len(getattr(value, "ds_shape", value.shape))}


def optimizer_state(engine: Engine) -> dict[str, Tensor]:
    """Gather the optimizer's state. Every rank must call this together; each receives all of it."""
    names = names_of(engine.module)
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
                whole = value if value.dim() == 0 else safe_get_full_optimizer_state(parameter, key)
                gathered[names[id(parameter)] + SEPARATOR + key] = whole.detach().cpu().clone()
    return gathered


def load_optimizer_state(engine: Engine, gathered: Mapping[str, Tensor]) -> None:
    """Put back what ``optimizer_state`` gathered, on any stage.

    Raises:
        ValueError: If it does not belong to the trained parameters.
    """
    if not gathered:  # saved before the first update
        return
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for label, value in gathered.items():
        name, _, key = label.rpartition(SEPARATOR)
        by_parameter.setdefault(name, {})[key] = value
    names = names_of(engine.module)
    if set(by_parameter) != set(names.values()):
        odd = [*sorted(set(by_parameter) - set(names.values())), *sorted(set(names.values()) - set(by_parameter))]
        raise UserError(f"the checkpoint's optimizer state is not of the trained parameters: {', '.join(odd[:5])}")
    if engine.stage == 0:
        _load(engine.deepspeed.optimizer, lambda parameter: by_parameter[names[id(parameter)]])
        return
    counters = _counters(by_parameter, _scalars(engine.module))
    for parameters, flat in _shards(engine):
        # first a whole flat state of the right kind, then each parameter's part of it
        like = by_parameter[names[id(parameters[0])]]
        _inner(engine).state[flat] = {
            key: _flat(_inner(engine), value, flat, counter=key in counters) for key, value in like.items()
        }
        _link(engine, parameters, flat)
        for parameter in parameters:
            for key, value in by_parameter[names[id(parameter)]].items():
                if key not in counters:
                    _set(engine, parameter, key, value)


@contextmanager
def whole_parameters(engine: Engine) -> Iterator[None]:
    """Have every rank hold whole parameters inside of the block; under ZeRO-3 each holds a part otherwise."""
    if engine.stage < 3:
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        yield


def _load(optimizer: torch.optim.Optimizer, state_of: Callable[[Tensor], dict[str, Tensor]]) -> None:
    """torch's own loader, which knows on which device an optimizer keeps its counters."""
    flat = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    packed = optimizer.state_dict()["param_groups"]
    state = {index: dict(state_of(parameter)) for index, parameter in enumerate(flat)}
    optimizer.load_state_dict({"state": state, "param_groups": packed})


def _counters(by_parameter: Mapping[str, Mapping[str, Tensor]], scalars: set[str]) -> set[str]:
    """Keys that hold one number for a whole parameter, such as how often it was updated.

    Shapes tell them apart where a parameter with dimensions has the key, else the name that torch gives to counters.

    Args:
        by_parameter: The state of each parameter.
        scalars: Names of the parameters without dimensions.
    """
    shapes = [(name, key, value.dim()) for name, state in by_parameter.items() for key, value in state.items()]
    known = {key for name, key, _ in shapes if name not in scalars}
    counters = {key for name, key, dim in shapes if name not in scalars and dim == 0}
    return counters | {key for _, key, _ in shapes if key not in known and key == "step"}


def _flat(optimizer: torch.optim.Optimizer, value: Tensor, flat: Tensor, *, counter: bool) -> Tensor:
    """What a flat partition's state begins with: zeros, or the counter, where this optimizer keeps counters."""
    if not counter:
        return torch.zeros_like(flat, requires_grad=False)
    on_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
    return value.to(flat.device if on_device else "cpu").clone()


def _inner(engine: Engine) -> torch.optim.Optimizer:
    """The torch optimizer that ZeRO has taken over."""
    inner: torch.optim.Optimizer = engine.deepspeed.optimizer.optimizer
    return inner


def _shards(engine: Engine) -> Iterator[tuple[list[nn.Parameter], Tensor]]:
    """The parameters of each flat partition of ZeRO, and the partition."""
    zero = engine.deepspeed.optimizer
    if engine.stage == 3:
        yield from zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True)
    else:
        yield from zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True)


def _link(engine: Engine, parameters: list[nn.Parameter], flat: Tensor) -> None:
    """Show each parameter its part of a flat state; ZeRO 1 and 2 do so once, maybe before there was any."""
    if engine.stage < 3:
        from deepspeed.utils import lazy_init_hp_params_optimizer_state

        lazy_init_hp_params_optimizer_state(parameters, flat, _inner(engine).state)


def _set(engine: Engine, parameter: nn.Parameter, key: str, value: Tensor) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    if engine.stage < 3:
        safe_set_full_optimizer_state(parameter, value.to(parameter.device), key)
        return
    # stage 3 pads a parameter so that every rank holds equally much of it
    part, rank = parameter.ds_tensor.numel(), torch.distributed.get_rank()  # type: ignore[attr-defined]
    padded = nn.functional.pad(value.flatten(), (0, part * (rank + 1))).narrow(0, part * rank, part)
    safe_set_local_optimizer_state(parameter, padded.to(parameter.device), key)
