"""Settings of a test laid over those of its helper."""

from __future__ import annotations


def latest(*texts: str) -> list[str]:
    """``--set`` texts, of which the last one of each key counts: loopkit itself refuses two."""
    return list({text.partition("=")[0]: text for text in texts}.values())
