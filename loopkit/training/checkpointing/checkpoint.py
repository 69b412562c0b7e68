"""Everything a run needs to go on as if it had never stopped, to and from a checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
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
    CheckpointProblem,
    begin_checkpoint,
    partial_checkpoint,
    publish_checkpoint,
)
from loopkit.runs.folder import RunFolder
from loopkit.runs.provenance import origins
from loopkit.training.checkpointing import rng
from loopkit.training.checkpointing.collective_write import CollectiveWrite
from loopkit.training.checkpointing.optimizer_state import load_optimizer_state, optimizer_state, whole_parameters
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.engine import Engine
from loopkit.training.step.health import History


@dataclass(frozen=True)
class TrainState:
    """Where a run stands.

    Args:
        step: Optimizer steps done.
        sequences: Place in the stream of epochs: the data cursor, with the seed the sampler's whole state. A rewind
            moves it on past the data that it leaves out.
        tokens: Real tokens trained on.
        micro: Sequences per forward pass, which ``micro_batch: auto`` must not choose anew.
        flops: Floating-point operations spent; None where they cannot be counted.
        history: What verdicts on the health of a step remember.
    """

    step: int
    sequences: int
    tokens: int
    micro: int
    flops: float | None = 0.0
    history: History = field(default_factory=History)


def save(
    folder: RunFolder,
    place: TrainState,
    *,
    recipe: Recipe,
    engine: Engine,
    tokenizer: Tokenizer,
    process: Process,
    generators: Mapping[str, Tensor],
    last: Path | None = None,
) -> Checkpoint:
    """Write a checkpoint; every rank must call this together.

    Args:
        folder: The run.
        place: Where it stands.
        recipe: The resolved recipe.
        engine: Weights and optimizer state.
        tokenizer: Saved along, so that a checkpoint can be used alone.
        process: Which rank this is.
        generators: State of this rank's random number generators at this place.
        last: The checkpoint before, for the message where this one cannot be written.

    Raises:
        WriteFailed: On every rank, if a file could not be written on any; nothing of this checkpoint is left.
    """
    partial = partial_checkpoint(folder.checkpoints, place.step)
    attempt = CollectiveWrite(process, partial, step=place.step, what="the checkpoint", checkpoint=last)
    attempt.first(begin_checkpoint, folder.checkpoints, place.step)
    attempt.agree()
    attempt.here(save_file, dict(generators), partial / _generators(process.rank))
    state = optimizer_state(engine)
    with whole_parameters(engine):
        attempt.first(_save_model, engine, partial)
    attempt.first(save_file, state, partial / OPTIMIZER)
    attempt.first(tokenizer.save, partial / TOKENIZER)
    attempt.first(write_text, partial / RESOLVED, recipe.to_yaml())
    attempt.first(write_json, partial / STATE, _facts(place, recipe, process))
    attempt.agree()
    attempt.first(publish_checkpoint, partial, place.step)
    attempt.agree()
    return Checkpoint(folder.checkpoint(place.step), place.step)


def _save_model(engine: Engine, partial: Path) -> None:
    save_weights(engine.module.model, partial / WEIGHTS)
    if own := _own_state(engine.module.objective):
        save_file(own, partial / OBJECTIVE)


def _facts(place: TrainState, recipe: Recipe, process: Process) -> dict[str, Any]:
    """The plain part of a checkpoint."""
    return {
        "step": place.step,
        "data": {"sequences": place.sequences, "seed": recipe.seed},
        "schedule": recipe.train.schedule.plain() | {"seed": recipe.seed, "next_step": place.step},
        "tokens": place.tokens,
        "flops": place.flops,
        "micro_batch": place.micro,
        "history": asdict(place.history),
        "world": process.world,
        "recipe": recipe.values,
        "components": origins(recipe.specs.values()),
    }


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """The plain part of a checkpoint: step, cursor, tokens, ranks, recipe.

    Raises:
        CheckpointProblem: If it is not readable, something is missing in it, or it holds weights alone, as that of an
            imported model does.
    """
    path = checkpoint.path / STATE
    if not path.is_file():
        raise CheckpointProblem(
            f"{checkpoint.path} holds weights and no state of training, so there is nothing to resume; "
            f"start a new run from it with train.start_from"
        )
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        place_of(state), state["recipe"]["train"]["loops_per"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointProblem(f"{path} does not hold the state of a run: {type(error).__name__}: {error}") from error
    return state


def place_of(state: Mapping[str, Any]) -> TrainState:
    """Where the run stood."""
    known = state.get("history", {})  # checkpoints from before there was one
    history = History(tuple(known.get("losses", ())), known.get("skips", 0), known.get("rewinds", 0))
    return TrainState(
        step=state["step"],
        sequences=state["data"]["sequences"],
        tokens=state["tokens"],
        micro=state["micro_batch"],
        flops=state["flops"],
        history=history,
    )


def load_parameters(checkpoint: Checkpoint, model: nn.Module, objective: nn.Module) -> None:
    """Weights and buffers, before DeepSpeed takes the parameters over.

    Raises:
        CheckpointProblem: If the state of the objective is not readable, or not of this objective.
        WeightsError: If the weights are not.
    """
    load_weights(model, checkpoint.path / WEIGHTS)
    if checkpoint.holds(OBJECTIVE):
        try:
            objective.load_state_dict(_tensors(checkpoint, OBJECTIVE))
        except RuntimeError as error:
            raise CheckpointProblem(f"{checkpoint.path / OBJECTIVE} is not of this objective: {error}") from error


def load_rest(checkpoint: Checkpoint, engine: Engine, process: Process) -> bool:
    """Optimizer state, and the generators of this rank.

    Returns:
        Whether this rank had generators to restore; a rank that the saved run did not have keeps those of its seed.

    Raises:
        CheckpointProblem: If a file is not what it should be.
    """
    load_optimizer_state(engine, _tensors(checkpoint, OPTIMIZER))
    if not checkpoint.holds(name := _generators(process.rank)):
        return False
    try:
        rng.restore(_tensors(checkpoint, name), process.device)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointProblem(f"{checkpoint.path / name} does not hold the state of generators: {error}") from error
    return True


def _tensors(checkpoint: Checkpoint, name: str) -> dict[str, Tensor]:
    """The tensors of a file; safetensors holds numbers and nothing that could be executed."""
    path = checkpoint.path / name
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointProblem(f"{path} is not a readable safetensors file: {error}") from error


def _generators(rank: int) -> str:
    return f"generators-{rank:05d}.safetensors"


def _own_state(objective: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in objective.state_dict().items()}
