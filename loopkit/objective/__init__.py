"""One scalar from supervision and regularizers."""

from loopkit.objective.objective import Objective, Outcome, build_objective

__all__ = ["Objective", "Outcome", "build_objective"]
