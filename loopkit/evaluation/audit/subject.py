"""The subject of an audit: a model, its objective and its input."""

from __future__ import annotations

from dataclasses import dataclass

from loopkit.components.schedule import Schedule
from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel
from loopkit.objective import Objective, build_objective
from loopkit.recipe import Recipe


@dataclass(frozen=True)
class AuditSubject:
    """A model in evaluation mode and fp64, so that rounding is not mistaken for a gradient.

    Args:
        model: The model.
        objective: The objective of the recipe.
        batch: Tokens and labels.
        loops: As in training: the mean of the schedule, with the recipe's number of loops with gradient.
    """

    model: LoopedModel
    objective: Objective
    batch: Batch
    loops: Loops

    @classmethod
    def of(cls, model: LoopedModel, recipe: Recipe, batch: Batch, max_loops: int) -> AuditSubject:
        """Build the subject from a model, with the objective and loops of its recipe.

        Args:
            model: Any model of this recipe; it is converted in place.
            recipe: The recipe.
            batch: Input of the model.
            max_loops: Maximum number of loops, >= 1.
        """
        schedule: Schedule = recipe.train.schedule.build()
        total = min(max(round(schedule.mean), 1), max_loops)
        total = total if model.max_depth is None else min(total, model.max_depth)
        backprop = recipe.train.backprop
        loops = Loops.fixed(total, total if backprop == "all" else min(backprop, total))
        objective = build_objective(recipe.objective).eval().double().to(batch.device)
        return cls(model.double().eval(), objective, batch, loops)
