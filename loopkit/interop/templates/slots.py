"""The pairs of loop and layer of a pass, each with keys and values of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def reads_readout(carry: Mapping[str, Any]) -> bool:
    """Check whether a carry needs the readout of every loop."""
    return carry["type"] == "readout" or any(reads_readout(part) for part in carry.get("of", ()))


def count_slots(section: Mapping[str, Any], num_loops: int) -> int:
    """Return the number of pairs; the coda counts in every loop if the carry needs its output, else once.

    Args:
        section: The resolved ``model`` section of the recipe.
        num_loops: Number of loops.
    """
    coda = section["coda"]["layers"] * (num_loops if reads_readout(section["carry"]) else 1)
    return int(section["prelude"]["layers"] + num_loops * section["core"]["layers"] + coda)
