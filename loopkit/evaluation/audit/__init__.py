"""The papers' design rule, applied to any recipe before it costs a GPU hour, or to a trained run.

Nothing here knows a component by name: scale is seen, kept or held because it was measured to be.
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
