"""Save and load checkpoints, which contain everything that an exact resume needs."""

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
    EARLIER,
    EMA,
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
from loopkit.training.checkpointing.optimizer_state import (
    gather_optimizer_state,
    gathered_parameters,
    load_optimizer_state,
)
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.engine import Engine
from loopkit.training.step.health import History
from loopkit.training.step.weight_average import WeightAverage


@dataclass(frozen=True)
class TrainState:
    """The progress of a run.

    Args:
        step: Optimizer steps done.
        sequences: The data cursor: position in the stream of epochs. With the seed it determines the state of the data
            sampler. A rewind moves it past the data that it leaves out.
        tokens: Real tokens trained on.
        micro: Sequences per forward pass, which ``micro_batch: auto`` keeps after a resume.
        flops: Floating-point operations spent; None if they cannot be counted.
        history: Recent losses, skips and rewinds, for the health checks.
    """

    step: int
    sequences: int
    tokens: int
    micro: int
    flops: float | None = 0.0
    history: History = field(default_factory=History)


def save(
    folder: RunFolder,
    state: TrainState,
    *,
    recipe: Recipe,
    engine: Engine,
    tokenizer: Tokenizer,
    process: Process,
    generators: Mapping[str, Tensor],
    average: WeightAverage | None = None,
    previous: Path | None = None,
) -> Checkpoint:
    """Write a checkpoint; all ranks must call this together.

    Args:
        folder: The run.
        state: Its progress.
        recipe: The resolved recipe.
        engine: Weights and optimizer state.
        tokenizer: Saved with it, so that a checkpoint is self-contained.
        process: This rank.
        generators: State of this rank's random number generators.
        average: The average of the weights, if the recipe has one.
        previous: The checkpoint before, for the message if this one cannot be written.

    Raises:
        WriteFailed: On every rank, if any rank could not write a file; the partial checkpoint is removed.
    """
    partial = partial_checkpoint(folder.checkpoints, state.step)
    write = CollectiveWrite(process, partial, step=state.step, what="the checkpoint", checkpoint=previous)
    write.on_first_rank(begin_checkpoint, folder.checkpoints, state.step)
    write.check()
    write.on_this_rank(save_file, dict(generators), partial / _generators_file(process.rank))
    optimizer = gather_optimizer_state(engine)
    with gathered_parameters(engine):
        write.on_first_rank(_save_model, engine, partial)
    if average is not None:
        with average.applied(), gathered_parameters(engine):
            write.on_first_rank(save_weights, engine.module.model, partial / EMA)
    write.on_first_rank(save_file, optimizer, partial / OPTIMIZER)
    write.on_first_rank(tokenizer.save, partial / TOKENIZER)
    write.on_first_rank(write_text, partial / RESOLVED, recipe.to_yaml())
    write.on_first_rank(write_json, partial / STATE, _state_json(state, recipe, process))
    write.check()
    write.on_first_rank(publish_checkpoint, partial, state.step)
    write.check()
    return Checkpoint(folder.checkpoint(state.step), state.step)


def _save_model(engine: Engine, partial: Path) -> None:
    save_weights(engine.module.model, partial / WEIGHTS)
    objective = engine.module.objective.state_dict()
    if objective:
        tensors = {name: value.detach().cpu().contiguous() for name, value in objective.items()}
        save_file(tensors, partial / OBJECTIVE)


def _state_json(state: TrainState, recipe: Recipe, process: Process) -> dict[str, Any]:
    """Content of ``state.json``."""
    return {
        "step": state.step,
        "data": {"sequences": state.sequences, "seed": recipe.seed},
        "schedule": recipe.train.schedule.plain() | {"seed": recipe.seed, "next_step": state.step},
        "tokens": state.tokens,
        "flops": state.flops,
        "micro_batch": state.micro,
        "history": asdict(state.history),
        "world": process.world,
        "recipe": recipe.values,
        "components": origins(recipe.specs.values()),
    }


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Read ``state.json`` of a checkpoint: step, data cursor, tokens, ranks, recipe.

    Raises:
        CheckpointProblem: If it is not readable or not complete, or the checkpoint contains weights only, as that of
            an imported model does.
    """
    path = checkpoint.path / STATE
    if not path.is_file():
        raise CheckpointProblem(
            f"{checkpoint.path} contains weights but no training state, so it cannot be resumed; "
            f"start a new run from it with train.start_from"
        )
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        train_state_of(state), state["recipe"]["train"]["loops_per"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointProblem(
            f"{path} does not contain the state of a run ({type(error).__name__}: {error}); {EARLIER}"
        ) from error
    return state


def train_state_of(state: Mapping[str, Any]) -> TrainState:
    """Convert the content of ``state.json`` to a ``TrainState``."""
    saved = state.get("history", {})  # absent in the oldest checkpoints
    history = History(tuple(saved.get("losses", ())), saved.get("skips", 0), saved.get("rewinds", 0))
    return TrainState(
        step=state["step"],
        sequences=state["data"]["sequences"],
        tokens=state["tokens"],
        micro=state["micro_batch"],
        flops=state["flops"],
        history=history,
    )


def load_parameters(checkpoint: Checkpoint, model: nn.Module, objective: nn.Module) -> None:
    """Load weights and buffers, before DeepSpeed wraps the model.

    Raises:
        CheckpointProblem: If the state of the objective is not readable or belongs to another objective.
        WeightsError: The same for the weights.
    """
    load_weights(model, checkpoint.path / WEIGHTS)
    if checkpoint.holds(OBJECTIVE):
        try:
            objective.load_state_dict(_tensors(checkpoint, OBJECTIVE))
        except RuntimeError as error:
            raise CheckpointProblem(
                f"{checkpoint.path / OBJECTIVE} belongs to another objective: {error}; "
                "resume with the objective that it was trained with"
            ) from error


def load_rest(checkpoint: Checkpoint, engine: Engine, process: Process, average: WeightAverage | None = None) -> bool:
    """Load the optimizer state, the average of the weights and the random generators of this rank.

    Returns:
        Whether the checkpoint contains generators of this rank; if not, they keep their seed.

    Raises:
        CheckpointProblem: If a file is damaged or missing.
    """
    load_optimizer(checkpoint, engine)
    if average is not None:
        average.load(_tensors(checkpoint, checkpoint.weights_file("ema").name))
    if not checkpoint.holds(name := _generators_file(process.rank)):
        return False
    try:
        rng.restore(_tensors(checkpoint, name), process.device)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointProblem(
            f"{checkpoint.path / name} does not contain the state of random generators ({error}); {EARLIER}"
        ) from error
    return True


def load_optimizer(checkpoint: Checkpoint, engine: Engine) -> None:
    """Load the optimizer state.

    Raises:
        UserError: If it is that of other parameters.
        CheckpointProblem: If the file is damaged.
    """
    load_optimizer_state(engine, _tensors(checkpoint, OPTIMIZER))


def _tensors(checkpoint: Checkpoint, name: str) -> dict[str, Tensor]:
    """Read a file; safetensors contains no executable code."""
    path = checkpoint.path / name
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointProblem(f"{path} is not a readable safetensors file ({error}); {EARLIER}") from error


def _generators_file(rank: int) -> str:
    return f"generators-{rank:05d}.safetensors"
