"""Check of the overrides that an evaluation accepts."""

from __future__ import annotations

from collections.abc import Iterable

from loopkit.errors import UserError


def check_overrides(overrides: Iterable[str]) -> None:
    """Reject overrides that would change the trained model instead of its measurement.

    Args:
        overrides: As ``key.path=value``.

    Raises:
        UserError: If one is neither under ``evaluate`` nor under ``data.source``.
    """
    for text in overrides:
        if not text.strip().startswith(("evaluate.", "data.source.", "evaluate=")):
            raise UserError(f"--set {text}: only evaluate.* and data.source.* of a trained run can be set")
