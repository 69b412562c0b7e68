"""Which depths an evaluation reads: the words ``1-8`` and ``1,2,8``, and what a model allows. No torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from loopkit.errors import UserError

_PART = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_EXAMPLES = "write a range such as 1-8, a list such as 1,2,8, or both: 1-4,8,16"
MOST_LOOPS = 10_000
"""Most loops that a recipe may ask for; a larger number is a slip, and nothing could run it."""


def parse_depths(text: str) -> list[int]:
    """Read a set of depths, in loops.

    Args:
        text: Ranges and single depths joined by commas, each at least 1: ``"1-8"``, ``"1,2,8"``, ``"1-4,8"``.

    Returns:
        The depths in ascending order.

    Raises:
        ValueError: If the text is empty, malformed, reversed, names depth 0, or names a depth twice.
    """
    if not text.strip():
        raise UserError(f"no depths given; {_EXAMPLES}")
    depths: list[int] = []
    for part in text.split(","):
        depths.extend(_read_part(part.strip(), text))
    repeated = sorted(depth for depth, times in Counter(depths).items() if times > 1)
    if repeated:
        named = ", ".join(map(str, repeated[:5])) + (", ..." if len(repeated) > 5 else "")
        raise UserError(f"depths {_short(text)}: {named} named more than once; name each depth once")
    return sorted(depths)


def default_depths(recorded: str | int | None, deepest: int, *, extrapolation: int | None = None) -> list[int]:
    """Return the depths of an evaluation that names none: the recipe's, or from 1 to the deepest trained one.

    Args:
        recorded: ``evaluate.depths`` of the recipe.
        deepest: The deepest trained depth.
        extrapolation: An untrained depth to add where the recipe has none.
    """
    if recorded is not None:
        return parse_depths(str(recorded))
    return [*range(1, deepest + 1), *([] if extrapolation is None else [extrapolation])]


def _read_part(part: str, text: str) -> Sequence[int]:
    match = _PART.fullmatch(part)
    if match is None:
        what = "an empty item" if not part else f"{_short(part)} is not a depth or a range"
        raise UserError(f"depths {_short(text)}: {what}; {_EXAMPLES}")
    first = int(match[1])
    last = int(match[2]) if match[2] is not None else first
    if last < first:
        raise UserError(f"depths {_short(text)}: {_short(part)} runs backwards; write {last}-{first}")
    if first == 0:
        raise UserError(
            f"depths {_short(text)}: depth 0 runs no loop, so there is nothing to evaluate; depths start at 1"
        )
    if last > MOST_LOOPS:
        raise UserError(f"depths {_short(text)}: {_short(part)} is more than {MOST_LOOPS:,} loops")
    return range(first, last + 1)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def check_depths(depths: Sequence[int], max_depth: int | None) -> None:
    """Refuse depths that a model cannot run.

    Args:
        depths: Depths to evaluate, in loops.
        max_depth: Most loops the model can run, or ``None`` where it has no limit.

    Raises:
        ValueError: If there are none, one is below 1, one is named twice, or one exceeds ``max_depth``.
    """
    if not depths:
        raise UserError(f"no depths given; {_EXAMPLES}")
    if min(depths) < 1:
        raise UserError(f"depth {min(depths)} cannot be evaluated; depths start at 1")
    if len(set(depths)) < len(depths):
        raise UserError(f"a depth is named more than once in {list(depths)}; name each depth once")
    if max_depth is not None and (beyond := [depth for depth in depths if depth > max_depth]):
        raise UserError(
            f"depth {min(beyond)} exceeds {max_depth}: a component of the model has parameters for each loop; "
            f"use depths up to {max_depth}"
        )


def format_depths(depths: Sequence[int]) -> str:
    """Write depths the way ``parse_depths`` reads them, with runs as ranges."""
    runs: list[list[int]] = []
    for depth in sorted(depths):
        if runs and depth == runs[-1][-1] + 1:
            runs[-1].append(depth)
        else:
            runs.append([depth])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
