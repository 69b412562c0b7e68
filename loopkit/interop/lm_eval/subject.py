"""The model that lm-eval evaluates: a run at a depth, with or without an early exit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from loopkit.components.exit import Exit
from loopkit.errors import UserError
from loopkit.evaluation.context import Dtype, evaluation_mode
from loopkit.evaluation.continuation.encode import Continuation
from loopkit.evaluation.continuation.score import ContinuationBatches, score_continuations
from loopkit.evaluation.trained_run import TrainedRun, open_run
from loopkit.inference import exit_early
from loopkit.loop import Trajectory
from loopkit.recipe import component
from loopkit.recipe.depths import check_depths
from loopkit.registry.catalog import catalog, did_you_mean

ARGUMENTS = ("pretrained", "depth", "exit", "threshold", "step", "dtype", "max_length", "max_gen_toks", "seed")
"""Arguments in ``--model_args``."""


@dataclass
class EvaluatedModel:
    """A run as lm-eval evaluates it.

    Args:
        run: The run.
        depth: Loops; with an exit, the maximum.
        exit: Early-exit rule; ``None`` runs all loops.
        exit_name: Its registered name.
        dtype: Arithmetic.
        window: Maximum number of inputs when likelihoods are computed, in tokens.
        batch: Sequences per forward pass.

    Attributes:
        loops: Sum over the sequences of the loops that they ran, and their number.
    """

    run: TrainedRun
    depth: int
    exit: Exit | None
    exit_name: str | None
    dtype: Dtype
    window: int | None
    batch: int
    loops: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def prefix(self) -> int | None:
        """The token before a text without a prompt: the one that starts, else that ends a text; ``None``: neither."""
        tokenizer = self.run.tokenizer
        return tokenizer.eos if tokenizer.bos is None else tokenizer.bos

    def score(
        self, items: Sequence[Continuation], progress: Callable[[int], None] = lambda count: None
    ) -> list[tuple[float, bool]]:
        """Compute the log-likelihood of each continuation, in nats, and whether greedy decoding produces it.

        Args:
            items: The continuations.
            progress: Called with the number of continuations of each completed batch.
        """
        if not items:
            return []
        model, pad = self.run.model, self.run.tokenizer.pad
        device = next(model.parameters()).device
        batches = ContinuationBatches(items, self.batch, device, 0 if pad is None else pad)
        with evaluation_mode(model, self.dtype):
            if self.exit is None:
                by_depth, _ = score_continuations(model, batches, [self.depth], greedy=True, progress=progress)
                return [(-answer.nll, bool(answer.exact)) for answer in by_depth[self.depth]]
            return self._score_with_exit(batches, self.exit, progress)

    def _score_with_exit(
        self, batches: ContinuationBatches, exit: Exit, progress: Callable[[int], None]
    ) -> list[tuple[float, bool]]:
        results: dict[int, tuple[float, bool]] = {}
        for done, batch in enumerate(batches, 1):
            exited = exit_early(self.run.model, batch, exit, self.depth, answer=_read_sums)
            self.loops[0] += int(exited.depth.sum())
            self.loops[1] += len(batch)
            for number, (nll, wrong) in zip(batch.sample.tolist(), exited.answer.tolist(), strict=True):
                results[number] = (-nll, wrong == 0)
            progress(done)
        return [results[number] for number in range(len(results))]

    def facts(self) -> dict[str, Any]:
        """Return what a reader of a result must know about the model, as plain JSON values."""
        run = self.run
        record: dict[str, Any] = {
            "run": run.folder.name,
            "recipe": run.recipe.name,
            "recipe_hash": run.recipe_hash,
            "checkpoint": run.checkpoint.path.name,
            "depth": self.depth,
            "trained_depths": run.trained.to_json(),
            "model_dtype": self.dtype,
            "model_num_parameters": sum(parameter.numel() for parameter in run.model.parameters()),
            "max_length": self.window,
        }
        if self.exit is not None:
            record |= {"exit": self.exit_name, "threshold": self.exit.threshold}
            if self.loops[1]:
                record["mean_depth"] = self.loops[0] / self.loops[1]
        return record


def _read_sums(t: Trajectory, k: int) -> Tensor:
    """Return the loss of each sequence and its number of tokens that are not the most likely ones, ``[b, 2]``."""
    wrong = (t.predict(k) != t.batch.labels) & t.batch.scored
    return torch.stack([t.nll([k])[0].double().sum(dim=1), wrong.sum(dim=1).double()], dim=1)


def open_model(
    pretrained: str | None,
    *,
    depth: int | None = None,
    exit: str | None = None,
    threshold: float | None = None,
    step: int | None = None,
    dtype: str | None = None,
    max_length: int | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> EvaluatedModel:
    """Open a run for lm-eval.

    Args:
        pretrained: Folder of the run, or its name under ``runs/``.
        depth: Loops; with an exit, the maximum. ``None``: the deepest trained one.
        exit: Name of an early-exit rule.
        threshold: Replaces the threshold of the rule.
        step: Optimizer step of the checkpoint; ``None``: the newest complete one.
        dtype: Arithmetic; ``None``: that of the recipe.
        max_length: Maximum number of inputs when likelihoods are computed; ``None``: the length of training.
        batch: Sequences per forward pass; ``None``: that of the recipe's evaluation.
        device: Device; ``None``: CUDA if there is one, else the CPU.

    Raises:
        UserError: If the run, the depth, the rule or the arithmetic does not exist, or options exclude each other.
    """
    if pretrained is None:
        raise UserError("model loopkit: no run; add pretrained=runs/NAME to --model_args")
    if dtype is not None and dtype not in get_args(Dtype):
        raise UserError(f"model loopkit: dtype {dtype!r} does not exist; {', '.join(get_args(Dtype))} do")
    if threshold is not None and exit is None:
        raise UserError("model loopkit: threshold applies only to an early exit; add exit=NAME")
    if device is None or (device.startswith("cuda") and not torch.cuda.is_available()):
        device = "cuda" if torch.cuda.is_available() else "cpu"  # lm-eval passes cuda:0 by default
    run = open_run(Path(pretrained) if Path(pretrained).is_dir() else pretrained, step=step, device=device)
    depth = run.trained.max if depth is None else depth
    check_depths([depth], run.model.max_depth)
    rule = None
    if exit is not None:
        components = catalog().with_files(Path(file) for file in run.recipe.values["plugins"])
        options = {} if threshold is None else {"threshold": threshold}
        rule = component("exit", {"type": exit, **options}, among=components).build()
    return EvaluatedModel(
        run=run,
        depth=depth,
        exit=rule,
        exit_name=exit,
        dtype=run.recipe.train.precision if dtype is None else dtype,  # type: ignore[arg-type]
        window=run.model.max_length if max_length is None else max_length,
        batch=run.recipe.evaluate.batch if batch is None else batch,
    )


def check_arguments(unknown: Sequence[str]) -> None:
    """Reject arguments that the model does not have.

    Raises:
        UserError: If there are any; the message contains the nearest name.
    """
    if unknown:
        name = unknown[0]
        raise UserError(
            f"model loopkit: no argument is called {name!r}; {did_you_mean(name, ARGUMENTS)}"
            f"arguments: {', '.join(ARGUMENTS)}"
        )
