"""loopkit from Python: a recipe, its model, a run; train, evaluate and generate as the commands do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loopkit.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    import torch

    from loopkit.components.tokenizer import Tokenizer
    from loopkit.evaluation import Result
    from loopkit.inference.complete import Completed
    from loopkit.model import LoopedModel
    from loopkit.training.train import TrainingResult

__all__ = ["build", "evaluate", "generate", "load", "load_recipe", "train"]


def build(
    recipe: Recipe | str | Path,
    *,
    vocabulary: int | None = None,
    profiles: Sequence[str] = (),
    overrides: Sequence[str] = (),
    device: torch.device | str | None = None,
) -> LoopedModel:
    """Build the model of a recipe with its first weights, as training would.

    Args:
        recipe: A recipe, its path, or the name of a shipped one.
        vocabulary: Number of tokens; None fits the recipe's tokenizer, for which the data must be there.
        profiles: Applied where ``recipe`` is a path or name.
        overrides: The same, as ``key.path=value``.
        device: Where it goes; ``"meta"`` holds shapes and no numbers.

    Raises:
        RecipeError: If the recipe has problems.
    """
    from loopkit.components.schedule import Schedule
    from loopkit.data import prepare
    from loopkit.model import build_model

    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, profiles, overrides)
    if vocabulary is None:
        vocabulary = prepare(recipe.data, splits=("train",)).tokenizer.size
    schedule: Schedule = recipe.train.schedule.build()
    return build_model(
        recipe.model,
        vocabulary=vocabulary,
        max_length=recipe.data.length,
        max_loops=schedule.bounds[1],
        mean_loops=schedule.mean,
        seed=recipe.seed,
        device=device,
    )


def load(run: str | Path | None = None, *, step: int | None = None) -> tuple[LoopedModel, Tokenizer, Recipe]:
    """Open a trained run.

    Args:
        run: Its folder or name under ``runs/``; None takes the newest.
        step: Which checkpoint, by optimizer step; None takes the newest whole one.

    Returns:
        The model in evaluation mode, its tokenizer, and the resolved recipe.
    """
    from loopkit.evaluation.trained_run import open_run

    opened = open_run(run, step=step)
    return opened.model, opened.tokenizer, opened.recipe


def train(
    recipe: Recipe | str | Path,
    *,
    name: str | None = None,
    profiles: Sequence[str] = (),
    overrides: Sequence[str] = (),
    runs: str | Path = "runs",
    resume: bool = False,
) -> TrainingResult:
    """Train a recipe, as ``loopkit train`` does in one process, and write the run's report.

    Args:
        recipe: A recipe, its path, or the name of a shipped one.
        name: Name of the run; None: that of the recipe and its profiles.
        profiles: Applied where ``recipe`` is a path or name.
        overrides: The same, as ``key.path=value``.
        runs: Folder of the runs.
        resume: Continue from the newest checkpoint of the run.

    Returns:
        The run's folder, its last optimizer step and its last checkpoint.

    Raises:
        UserError: If the recipe, the data or the run folder has problems.
        Interrupted: If a signal ended training; a checkpoint was written.
        Unhealthy: If ``train.health`` stopped the run.
    """
    from loopkit.report import write_report
    from loopkit.runs import RunFolder, check_name, run_name
    from loopkit.training.train import train as train_recipe

    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, profiles, overrides)
    chosen = check_name(name) if name is not None else run_name(recipe.name, recipe.hash if overrides else None)
    trained = train_recipe(recipe, folder=RunFolder(Path(runs) / chosen), resume=resume)
    write_report(trained.folder)
    return trained


def evaluate(
    run: str | Path | None = None,
    *,
    depths: str | Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    tasks: Sequence[str] = (),
    step: int | None = None,
    dtype: Literal["fp32", "bf16_autocast"] | None = None,
    read_as: Literal["depth", "trained"] = "depth",
    device: torch.device | str | None = None,
    runs: str | Path = "runs",
) -> Result:
    """Measure a run at every depth, as ``loopkit eval`` does in one process, and write result and report.

    Args:
        run: Its folder or name; None takes the newest.
        depths: Numbers of loops, as ``"1-8"`` or a list; None: as the recipe says.
        overrides: Changes under ``evaluate`` or ``data.source``, as ``evaluate.max_tokens=10000``.
        tasks: Ask these instead of the recipe's, as ``name`` or ``name=type``.
        step: Which checkpoint, by optimizer step; None takes the newest whole one.
        dtype: Arithmetic; None: the recipe's.
        read_as: ``depth`` reads loop k as the last of a run of k, ``trained`` as training read it.
        device: Where it runs; None is the CPU.
        runs: Folder of the runs.

    Returns:
        The result; ``result.depths`` has one row per depth, ``result.to_json()`` what was written.

    Raises:
        UserError: If there is no such run, or it cannot be measured at these depths.
    """
    from loopkit.data import prepare
    from loopkit.evaluation import completions_of, parse_depths, write_result
    from loopkit.evaluation import evaluate as evaluate_model
    from loopkit.evaluation.measure import scores_text
    from loopkit.evaluation.overrides import check_overrides
    from loopkit.evaluation.settings import EvaluationSettings
    from loopkit.evaluation.trained_run import open_run
    from loopkit.report import write_report

    check_overrides(overrides)
    chosen = parse_depths(depths) if isinstance(depths, str) else depths
    opened = open_run(run, step=step, overrides=tuple(overrides), tasks=tasks, device=device, root=Path(runs))
    recipe, prepared = opened.recipe, None
    if scores_text(recipe.evaluate):
        prepared = prepare(recipe.data, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer)
    result = evaluate_model(
        opened.model,
        prepared,
        EvaluationSettings.from_recipe(recipe, depths=chosen, dtype=dtype, read_as=read_as),
        tokenizer=opened.tokenizer,
        trained=opened.trained,
        origin=opened.origin,
        completions=completions_of(opened.folder, opened.checkpoint.step),
    )
    write_result(result, opened.folder)
    write_report(opened.folder)
    return result


def generate(
    prompts: str | Sequence[str],
    run: str | Path | None = None,
    *,
    depth: int | None = None,
    max_tokens: int = 256,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    step: int | None = None,
    dtype: Literal["fp32", "bf16_autocast"] | None = None,
    device: torch.device | str | None = None,
    runs: str | Path = "runs",
) -> list[Completed]:
    """Generate text from prompts, as ``loopkit generate`` does.

    Args:
        prompts: One prompt or several, which are one batch.
        run: Its folder or name; None takes the newest.
        depth: Number of loops; None: the most trained.
        max_tokens: Most tokens of each completion.
        temperature: 0 takes the likeliest token.
        top_p: Draw from the likeliest tokens that together reach this probability.
        seed: Of the draws, and of a random start.
        stop: Strings that end a completion.
        step: Which checkpoint, by optimizer step; None takes the newest whole one.
        dtype: Arithmetic; None: the recipe's.
        device: Where it runs; None is the CPU.
        runs: Folder of the runs.

    Returns:
        For each prompt its completion: ``text``, ``num_tokens``, and whether it ``finished`` by itself.

    Raises:
        UserError: If there is no such run, a prompt is empty, or a number is out of its range.
    """

    from loopkit.errors import UserError
    from loopkit.evaluation.context import evaluation_mode
    from loopkit.evaluation.trained_run import open_run
    from loopkit.inference import Sampling, complete

    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not all(texts):
        raise UserError("a prompt is empty; give each one some text")
    sampling = Sampling(temperature, top_p, seed)
    opened = open_run(run, step=step, device=device, root=Path(runs))
    with evaluation_mode(opened.model, dtype or opened.recipe.train.precision):
        return complete(
            opened.model,
            opened.tokenizer,
            texts,
            depth=opened.trained.max if depth is None else depth,
            max_tokens=max_tokens,
            stop=stop,
            sampling=sampling,
        )
