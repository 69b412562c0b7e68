"""Estimate the cost of a recipe: parameters, FLOPs, memory, steps and time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from loopkit.components.schedule import Schedule
from loopkit.components.tokenizer import Tokenizer
from loopkit.cost.activation_memory import fit_saved_bytes
from loopkit.cost.available_memory import memory_budget
from loopkit.cost.cluster import Cluster, Work, layouts
from loopkit.cost.flops import StepFlops
from loopkit.cost.hardware import MEMORY_SHARE, Ceiling, recipe_ceiling
from loopkit.cost.memory import Memory, States, count_averaged, count_states, estimate_activations
from loopkit.data.batch_sizes import largest_micro
from loopkit.errors import UserError
from loopkit.model import LoopedModel, build_model, cache_numbers, count_parameters
from loopkit.model.parameter_groups import freeze
from loopkit.objective import build_objective
from loopkit.recipe import Recipe


@dataclass(frozen=True)
class Assumptions:
    """Values that a recipe does not determine.

    Args:
        vocabulary: Number of tokens; None: the tokenizer's size, or its maximum.
        examples: Training windows in an epoch; None if the data has not been read.
        mfu: Assumed share of the peak FLOP/s.
        flops_per_s: Peak FLOP/s; None measures this machine.
        world: Number of devices.
        cluster: GPUs for which layouts are estimated; None: no layouts.
    """

    vocabulary: int | None = None
    examples: int | None = None
    mfu: float = 0.4
    flops_per_s: float | None = None
    world: int = 1
    cluster: Cluster | None = None


def plan(recipe: Recipe, assumptions: Assumptions) -> dict[str, Any]:
    """Return the estimates of ``loopkit plan`` as JSON; unknown values are absent.

    Args:
        recipe: The resolved recipe.
        assumptions: Values that the recipe does not determine.

    Raises:
        UserError: If the vocabulary is unknown, or the model does not run on ``meta``.
    """
    vocabulary = assumptions.vocabulary or known_vocabulary(recipe)
    schedule: Schedule = recipe.train.schedule.build()
    min_loops, max_loops = schedule.bounds
    model = build_model(
        recipe.model, vocabulary=vocabulary, max_length=recipe.data.length, max_loops=max_loops, device="meta"
    )
    objective = build_objective(recipe.objective)
    freeze(model, recipe.train.trainable)
    device = "cpu" if assumptions.cluster is None else "cuda"
    zero = recipe.train.deepspeed.get("zero_optimization", {})
    checkpointing = recipe.train.checkpointing
    options = {False, True} if assumptions.cluster else {checkpointing}
    fit = cache(fit_saved_bytes)  # recomputing needs the bytes without it too
    activations = {
        option: estimate_activations(model, objective.supervision, recipe, schedule, option, device, fit)
        for option in options
    }
    memory = Memory(
        States.of(*count_states(model, recipe), zero, assumptions.world, count_averaged(model, recipe)),
        activations[checkpointing],
        max(recipe.train.batch // assumptions.world, 1),
    )
    backprop = max_loops if recipe.train.backprop == "all" else recipe.train.backprop
    flops = StepFlops(model, objective.supervision, length=recipe.data.length, max_loops=max_loops)
    mean = max(round(schedule.mean), 1)
    per_token = flops.per_token(mean, min(mean, backprop))
    micro = _micro_batch(recipe, memory, assumptions)
    result = {
        "recipe": recipe.name,
        "vocabulary": model.vocabulary,
        "parameters": _parameters(model, (1, mean, max_loops)),
        "loops": {"min": min_loops, "max": max_loops, "mean": schedule.mean},
        "depths": [_depth(model, flops, depth) for depth in sorted({1, min_loops, mean, max_loops})],
        "training_flops_per_token": per_token,
        "micro_batch": micro,
        "accumulation": recipe.train.batch // (micro * assumptions.world),
        "devices": assumptions.world,
        "memory_bytes": _memory(memory, micro),
    }
    if assumptions.cluster is not None:
        recomputed = flops.forward(max(mean - backprop, 0) + 1, mean)
        work = Work(
            *count_states(model, recipe),
            looped=count_parameters(model).looped,
            loops=schedule.mean,
            batch=recipe.train.batch,
            length=recipe.data.length,
            flops_per_token=per_token,
            recomputed_per_token=recomputed,
            zero=zero,
            activations=activations,
            averaged=count_averaged(model, recipe),
        )
        result["cluster"] = {
            "machines": asdict(assumptions.cluster),
            "layouts": list(layouts(work, assumptions.cluster)),
        }
    return result | _length_and_time(recipe, assumptions, per_token)


def known_vocabulary(recipe: Recipe) -> int:
    """Return the size of the vocabulary, or its maximum, without reading data.

    Raises:
        UserError: If it depends on the data.
    """
    if recipe.model.vocabulary is not None:
        return recipe.model.vocabulary
    spec = recipe.data.tokenizer
    if isinstance(max_size := spec.options.get("max_size"), int):
        return max_size
    try:
        tokenizer: Tokenizer = spec.build()
    except UserError as error:
        raise UserError(f"{error}; or give --vocabulary N") from error
    if tokenizer.fit_on:
        raise UserError(f"tokenizer '{spec.name}' learns its size from the data; give --vocabulary N")
    return tokenizer.size


def _parameters(model: LoopedModel, depths: tuple[int, ...]) -> dict[str, Any]:
    count = count_parameters(model)
    effective = {str(depth): count.effective(depth) for depth in sorted(set(depths))}
    return {"unique": count.unique, "looped": count.looped, "parts": count.parts, "effective": effective}


def _depth(model: LoopedModel, flops: StepFlops, depth: int) -> dict[str, Any]:
    return {
        "depth": depth,
        "forward_flops_per_token": flops.forward(1, depth) + flops.outside,
        "kv_cache_bytes_per_token": 2 * cache_numbers(model, depth),  # in bf16
    }


def _memory(memory: Memory, micro: int) -> dict[str, int]:
    return {
        "parameters": memory.states.parameters,
        "gradients": memory.states.gradients,
        "optimizer": memory.states.optimizer,
        "buffers": memory.states.buffers,
        "average": memory.states.average,
        "activations": memory.activations.stored(micro),
        "logits": memory.activations.logits(micro),
        "total": memory.total(micro),
    }


def _micro_batch(recipe: Recipe, memory: Memory, assumptions: Assumptions) -> int:
    if recipe.train.micro_batch != "auto":
        return recipe.train.micro_batch
    if assumptions.cluster is not None:
        budget = MEMORY_SHARE * assumptions.cluster.memory
    else:
        budget = memory_budget(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return largest_micro(recipe.train.batch, assumptions.world, lambda size: memory.total(size) <= budget)


def _length_and_time(recipe: Recipe, assumptions: Assumptions, per_token: float) -> dict[str, Any]:
    """Return steps, tokens, FLOPs and time, if known."""
    train, length = recipe.train, recipe.data.length
    steps = train.num_steps(assumptions.examples, length)
    if steps is None:
        return {"epochs": train.epochs}
    tokens = steps * train.batch * length
    ceiling = _ceiling(recipe) if assumptions.flops_per_s is None else Ceiling(assumptions.flops_per_s, "given", "", "")
    rate = assumptions.mfu * ceiling.flops_per_s * assumptions.world / per_token
    return {
        "steps": steps,
        "tokens": tokens,
        "training_flops": tokens * per_token,
        "mfu": assumptions.mfu,
        "ceiling": ceiling.to_json(),
        "tokens_per_s": rate,
        "seconds": tokens / rate,
    }


def _ceiling(recipe: Recipe) -> Ceiling:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return recipe_ceiling(device, recipe.train.precision)
