"""The audit of a recipe or a trained run: whether the state norm is controlled and the recurrence stable.

The audit depends on measurements only, never on the names of components.
"""

from loopkit.evaluation.audit.findings import Audit, Motion, Pull, Recurrence, ScaleFinding, SpectralRadiusFinding, View
from loopkit.evaluation.audit.recipe import audit_recipe, warn_of_blind_spot
from loopkit.evaluation.audit.run import audit_run

__all__ = [
    "Audit",
    "Motion",
    "Pull",
    "Recurrence",
    "ScaleFinding",
    "SpectralRadiusFinding",
    "View",
    "audit_recipe",
    "audit_run",
    "warn_of_blind_spot",
]
