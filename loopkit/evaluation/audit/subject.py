"""What is audited: a model, its objective, and what it runs on."""

from __future__ import annotations

from dataclasses import dataclass

from loopkit.components.schedule import Schedule
from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel
from loopkit.objective import Objective, build_objective
from loopkit.recipe import Recipe


@dataclass(frozen=True)
class AuditSubject:
    """A model in evaluation mode and fp64, where rounding cannot be taken for a gradient.

    Args:
        model: The model.
        objective: The recipe's.
        batch: Tokens and labels.
        loops: As in training: the mean of the schedule, with gradient through as many of the last.
    """

    model: LoopedModel
    objective: Objective
    batch: Batch
    loops: Loops

    @classmethod
    def of(cls, model: LoopedModel, recipe: Recipe, batch: Batch, most_loops: int) -> AuditSubject:
        """A model with its recipe's objective and loops.

        Args:
            model: Any model of this recipe; it is converted in place.
            recipe: The recipe.
            batch: What it runs on.
            most_loops: Run at most so many, >= 1.
        """
        schedule: Schedule = recipe.train.schedule.build()
        total = min(max(round(schedule.mean), 1), most_loops)
        total = total if model.max_depth is None else min(total, model.max_depth)
        asked = recipe.train.backprop
        loops = Loops.fixed(total, total if asked == "all" else min(asked, total))
        objective = build_objective(recipe.objective).eval().double().to(batch.device)
        return cls(model.double().eval(), objective, batch, loops)
