"""The Python interface: build, train, load, evaluate and generate, as the commands do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loopkit.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    import torch

    from loopkit.components.tokenizer import Tokenizer
    from loopkit.evaluation import Result
    from loopkit.inference.complete import Completed
    from loopkit.model import LoopedModel
    from loopkit.runs.checkpoint import Weights
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
    """Build the model of a recipe with the initial weights of training.

    Args:
        recipe: A recipe, its path, or the name of a shipped one.
        vocabulary: Number of tokens; None takes that of the recipe's tokenizer, which needs the data.
        profiles: Profiles to apply if ``recipe`` is a path or name.
        overrides: Values to set in that case, as ``key.path=value``.
        device: Device of the model; ``"meta"`` has shapes without numbers.

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


def load(
    run: str | Path | None = None, *, step: int | None = None, weights: Weights = "trained"
) -> tuple[LoopedModel, Tokenizer, Recipe]:
    """Load a trained run.

    Args:
        run: Its folder or name under ``runs/``; None takes the newest.
        step: Optimizer step of the checkpoint; None takes the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.

    Returns:
        The model in evaluation mode, its tokenizer, and the resolved recipe.
    """
    from loopkit.evaluation.trained_run import open_run

    opened = open_run(run, step=step, weights=weights)
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
        name: Name of the run; None takes that of the recipe and its profiles.
        profiles: Profiles to apply if ``recipe`` is a path or name.
        overrides: Values to set in that case, as ``key.path=value``.
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
    chosen_name = check_name(name) if name is not None else run_name(recipe.name, recipe.hash if overrides else None)
    result = train_recipe(recipe, folder=RunFolder(Path(runs) / chosen_name), resume=resume)
    write_report(result.folder)
    return result


def evaluate(
    run: str | Path | None = None,
    *,
    depths: str | Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    tasks: Sequence[str] = (),
    step: int | None = None,
    weights: Weights = "trained",
    dtype: Literal["fp32", "bf16_autocast"] | None = None,
    read_as: Literal["depth", "trained"] = "depth",
    device: torch.device | str | None = None,
    runs: str | Path = "runs",
) -> Result:
    """Evaluate a run at every depth, as ``loopkit eval`` does in one process, and write result and report.

    Args:
        run: Its folder or name; None takes the newest.
        depths: Numbers of loops, as ``"1-8"`` or a list; None takes those of the recipe, or 1 to the most trained and
            twice that.
        overrides: Changes under ``evaluate`` or ``data.source``, as ``evaluate.max_tokens=10000``.
        tasks: Tasks to run instead of the recipe's, as ``name`` or ``name=type``.
        step: Optimizer step of the checkpoint; None takes the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.
        dtype: Arithmetic; None takes that of the recipe.
        read_as: ``depth`` reads loop k as the last of k loops, ``trained`` as training did.
        device: Device to use; None is the CPU.
        runs: Folder of the runs.

    Returns:
        The result; ``result.depths`` has one row per depth, ``result.to_json()`` is the written record.

    Raises:
        UserError: If there is no such run, or it cannot be evaluated at these depths.
    """
    from loopkit.evaluation import parse_depths
    from loopkit.evaluation.evaluate_run import evaluate_run
    from loopkit.evaluation.overrides import check_overrides
    from loopkit.evaluation.trained_run import open_run
    from loopkit.report import write_report

    check_overrides(overrides)
    depths = parse_depths(depths) if isinstance(depths, str) else depths
    opened = open_run(
        run,
        step=step,
        weights=weights,
        overrides=tuple(overrides),
        tasks=tasks,
        device=device,
        root=Path(runs),
    )
    result, _ = evaluate_run(opened, depths, dtype=dtype, read_as=read_as)
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
    top_k: int | None = None,
    min_p: float = 0.0,
    seed: int = 0,
    exit: str | Mapping[str, Any] | None = None,
    exit_level: Literal["token", "sequence"] = "token",
    draft_depth: int | None = None,
    draft_tokens: int = 4,
    stop: Sequence[str] = (),
    step: int | None = None,
    weights: Weights = "trained",
    dtype: Literal["fp32", "bf16_autocast"] | None = None,
    device: torch.device | str | None = None,
    runs: str | Path = "runs",
) -> list[Completed]:
    """Generate text from prompts, as ``loopkit generate`` does.

    Args:
        prompts: One prompt, or several, which form one batch.
        run: Its folder or name; None takes the newest.
        depth: Number of loops; None takes the most trained.
        max_tokens: Maximum number of new tokens.
        temperature: Sampling temperature; 0 is greedy.
        top_p: Sample from the most likely tokens that together reach this probability.
        top_k: Sample from this many most likely tokens.
        min_p: Sample from tokens at least this share as likely as the most likely one.
        seed: Seed of sampling, and of a random start.
        exit: Rule that stops looping early, with its options as in a recipe: ``{"type": "kl", "threshold": -0.01}``;
            ``depth`` is then the maximum.
        exit_level: Decide for each new ``token``, or once for a prompt and its new tokens (``sequence``).
        draft_depth: Draft tokens with this many loops, and verify several in one pass of ``depth``.
        draft_tokens: Tokens of the first draft; the number adapts.
        stop: Strings that end a completion.
        step: Optimizer step of the checkpoint; None takes the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.
        dtype: Arithmetic; None takes that of the recipe.
        device: Device to use; None is the CPU.
        runs: Folder of the runs.

    Returns:
        The completion of each prompt: ``text``, ``num_tokens``, ``mean_depth``, ``num_drafted``, and whether it
        ``finished`` before the limit.

    Raises:
        UserError: If there is no such run, a prompt is empty, or a number is out of its range.
    """
    from loopkit.errors import UserError
    from loopkit.evaluation.context import evaluation_mode
    from loopkit.evaluation.evaluate_run import build_exit
    from loopkit.evaluation.trained_run import open_run
    from loopkit.inference import Draft, ExitRule, Sampling, complete

    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not all(texts):
        raise UserError("a prompt is empty; give each prompt a text")
    sampling = Sampling(temperature, top_p, seed, top_k, min_p)
    opened = open_run(run, step=step, weights=weights, device=device, root=Path(runs))
    with evaluation_mode(opened.model, dtype or opened.recipe.train.precision):
        return complete(
            opened.model,
            opened.tokenizer,
            texts,
            depth=opened.trained.max if depth is None else depth,
            max_tokens=max_tokens,
            stop=stop,
            sampling=sampling,
            exit=None if exit is None else ExitRule(build_exit(opened, exit), exit_level),
            draft=None if draft_depth is None else Draft(draft_depth, draft_tokens),
        )
