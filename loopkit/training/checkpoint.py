"""Everything a run needs to go on as if it had never stopped, to and from a checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from loopkit.components.tokenizer import Tokenizer
from loopkit.model import load_weights, save_weights
from loopkit.recipe import Recipe
from loopkit.runs.atomic import write_json, write_text
from loopkit.runs.checkpoint import (
    OBJECTIVE,
    OPTIMIZER,
    RESOLVED,
    STATE,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    begin_checkpoint,
    publish_checkpoint,
)
from loopkit.runs.folder import RunFolder
from loopkit.runs.provenance import origins
from loopkit.training import rng
from loopkit.training.engine import Engine
from loopkit.training.process import Process
from loopkit.training.state import load_optimizer_state, optimizer_state, whole_parameters


@dataclass(frozen=True)
class Place:
    """Where a run stands.

    Args:
        step: Optimizer steps done.
        sequences: Sequences taken from the stream of epochs: the data cursor, with the seed the sampler's whole state.
        tokens: Real tokens trained on.
        micro: Sequences per forward pass, which ``micro_batch: auto`` must not choose anew.
        flops: Floating-point operations spent; None where they cannot be counted.
    """

    step: int
    sequences: int
    tokens: int
    micro: int
    flops: float | None = 0.0


def save(
    folder: RunFolder,
    place: Place,
    *,
    recipe: Recipe,
    engine: Engine,
    tokenizer: Tokenizer,
    process: Process,
    generators: Mapping[str, Tensor],
) -> Checkpoint | None:
    """Write a checkpoint; every rank must call this together.

    Args:
        folder: The run.
        place: Where it stands.
        recipe: The resolved recipe.
        engine: Weights and optimizer state.
        tokenizer: Saved along, so that a checkpoint can be used alone.
        process: Which rank this is.
        generators: State of this rank's random number generators at this place.

    Returns:
        The checkpoint on the first rank, None on others.
    """
    partial = folder.checkpoints / f".step-{place.step:08d}.partial"
    if process.first:
        partial = begin_checkpoint(folder.checkpoints, place.step)
    process.barrier()
    save_file(dict(generators), partial / _generators(process.rank))
    state = optimizer_state(engine)
    with whole_parameters(engine):
        if process.first:
            save_weights(engine.module.model, partial / WEIGHTS)
            own = _own_state(engine.module.objective)
            if own:
                save_file(own, partial / OBJECTIVE)
    if process.first:
        save_file(state, partial / OPTIMIZER)
        tokenizer.save(partial / TOKENIZER)
        write_text(partial / RESOLVED, recipe.to_yaml())
        facts = {
            "step": place.step,
            "data": {"sequences": place.sequences, "seed": recipe.seed},
            "schedule": recipe.train.schedule.plain() | {"seed": recipe.seed, "next_step": place.step},
            "tokens": place.tokens,
            "flops": place.flops,
            "micro_batch": place.micro,
            "world": process.world,
            "recipe": recipe.values,
            "components": origins(recipe.specs.values()),
        }
        write_json(partial / STATE, facts)
    process.barrier()
    return publish_checkpoint(partial, place.step, recipe.train.checkpoint.keep) if process.first else None


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """The plain part of a checkpoint: step, cursor, tokens, ranks, recipe."""
    state: dict[str, Any] = json.loads((checkpoint.path / STATE).read_text(encoding="utf-8"))
    return state


def place_of(state: Mapping[str, Any]) -> Place:
    """Where the run stood."""
    return Place(state["step"], state["data"]["sequences"], state["tokens"], state["micro_batch"], state["flops"])


def load_parameters(checkpoint: Checkpoint, model: nn.Module, objective: nn.Module) -> None:
    """Weights and buffers, before DeepSpeed takes the parameters over."""
    load_weights(model, checkpoint.path / WEIGHTS)
    if (own := checkpoint.path / OBJECTIVE).is_file():
        objective.load_state_dict(load_file(own))


def load_rest(checkpoint: Checkpoint, engine: Engine, process: Process) -> bool:
    """Optimizer state, and the generators of this rank.

    Returns:
        Whether this rank had generators to restore; a rank that the saved run did not have keeps those of its seed.
    """
    load_optimizer_state(engine, load_file(checkpoint.path / OPTIMIZER))
    generators = checkpoint.path / _generators(process.rank)
    if generators.is_file():
        rng.restore(load_file(generators), process.device)
    return generators.is_file()


def _generators(rank: int) -> str:
    return f"generators-{rank:05d}.safetensors"


def _own_state(objective: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in objective.state_dict().items()}
