"""What an evaluation measures, and how: the choices of a recipe and of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopkit.evaluation.context import Dtype
from loopkit.evaluation.depth_sweep import ReadAs

if TYPE_CHECKING:
    from loopkit.recipe import Recipe
    from loopkit.recipe.format import EvaluateConfig
    from loopkit.registry import Spec


def generates(spec: Spec) -> bool:
    """Whether a task generates completions instead of scoring text."""
    return bool(spec.traits.get("generates", False))


def chooses(spec: Spec) -> bool:
    """Whether a task compares options instead of scoring text."""
    return bool(spec.traits.get("chooses", False))


def reads_split(spec: Spec) -> bool:
    """Whether a task scores the split under evaluation."""
    return not generates(spec) and not chooses(spec)


def scores_text(config: EvaluateConfig) -> bool:
    """Whether an evaluation scores the split, so that its data is needed."""
    return bool(config.probes) or any(map(reads_split, config.tasks.values()))


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What ``evaluate`` measures, at which depths, and in which arithmetic.

    Args:
        config: The recipe's ``evaluate`` section: split, protocol, batch size, tasks and probes.
        depths: In loops; ``None``: the depths of ``config``, or from 1 to the deepest trained one.
        length: Inputs of a window, in tokens; ``None``: the model's maximum.
        dtype: ``fp32``, or ``bf16_autocast`` for matrix products in bf16.
        read_as: ``depth`` reads loop k as the last loop of a run of k; ``trained`` reads it as a run of the maximum
            number of trained loops does.
        timed_batches: Batches on which each depth is also run separately and timed; 0 omits ``tokens_per_s``.
    """

    config: EvaluateConfig
    depths: Sequence[int] | None = None
    length: int | None = None
    dtype: Dtype = "fp32"
    read_as: ReadAs = "depth"
    timed_batches: int = 0

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        *,
        depths: Sequence[int] | None = None,
        dtype: Dtype | None = None,
        read_as: ReadAs = "depth",
        timed_batches: int = 0,
    ) -> EvaluationSettings:
        """Evaluate as a recipe states.

        Args:
            recipe: The resolved recipe.
            depths: As in the class.
            dtype: ``None``: the precision of training.
            read_as: As in the class.
            timed_batches: As in the class.
        """
        return cls(
            config=recipe.evaluate,
            depths=depths,
            length=recipe.data.length,
            dtype=dtype or recipe.train.precision,
            read_as=read_as,
            timed_batches=timed_batches,
        )


@dataclass(frozen=True, kw_only=True)
class ExitBenchmarkSettings:
    """What ``exit_benchmark`` runs, and how it calibrates.

    Args:
        split: Split whose sequences are timed.
        batch: Sequences per forward pass.
        length: Inputs of a window, in tokens; ``None``: the model's maximum. Windows do not overlap.
        dtype: ``fp32``, or ``bf16_autocast`` for matrix products in bf16.
        read_as: ``depth`` reads loop k as the last loop of a run of k; ``trained`` reads it as a run of the maximum
            number of trained loops does.
        loops: Maximum number of loops, K >= 2; ``None``: the deepest trained one.
        sequences: Sequences in each slice; ``None``: 160, or half of the split if it is smaller.
        calibrate_on: Another split to calibrate on; ``None``: the sequences before those that are timed.
        tolerance: Acceptable relative increase of the perplexity, >= 0.
        thresholds: Number of quantiles of an exit's scores that are tried.
        repeats: Timed runs of each contender, >= 1.
    """

    split: str = "validation"
    batch: int = 8
    length: int | None = None
    dtype: Dtype = "fp32"
    read_as: ReadAs = "depth"
    loops: int | None = None
    sequences: int | None = None
    calibrate_on: str | None = None
    tolerance: float = 0.01
    thresholds: int = 51
    repeats: int = 3

    @classmethod
    def from_recipe(
        cls, recipe: Recipe, *, dtype: Dtype | None = None, read_as: ReadAs = "depth", sequences: int | None = None
    ) -> ExitBenchmarkSettings:
        """Benchmark on the split of a recipe's evaluation.

        Args:
            recipe: The resolved recipe.
            dtype: ``None``: the precision of training.
            read_as: As in the class.
            sequences: As in the class.
        """
        return cls(
            split=recipe.evaluate.split,
            batch=recipe.evaluate.batch,
            length=recipe.data.length,
            dtype=dtype or recipe.train.precision,
            read_as=read_as,
            sequences=sequences,
        )
