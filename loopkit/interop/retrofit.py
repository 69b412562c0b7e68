"""A pretrained model of one stack, turned into prelude, core and coda: which of its layers go where.

The first layers make the prelude, the last the coda, those before the coda the core; what lies between prelude and core
is dropped. State and input meet in a new matrix that passes the input on at first, so that one loop is the chosen
layers one after the other.

Paper: arXiv:2511.07384. It does not say what its matrix begins as; the first state is Huginn's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopkit.errors import UserError
from loopkit.interop.architectures import Reading
from loopkit.interop.weight_map import Link, Links

STAGES = ("prelude", "core", "coda")
EXAMPLES = "write prelude=4,core=8,coda=4, or with layer numbers, prelude=0-3,core=10-17,coda=18-21"
_PART = re.compile(r"(prelude|core|coda)=(?:(\d+)-(\d+)|(\d+))")


@dataclass(frozen=True)
class Retrofit:
    """Layers of a stack, by their numbers from 0."""

    prelude: range
    core: range
    coda: range

    @classmethod
    def parse(cls, text: str, layers: int) -> Retrofit:
        """Read what a user asks for.

        Args:
            text: A count or a range of layer numbers for each stage, such as ``prelude=4,core=8,coda=4``.
            layers: Layers that the model has.

        Raises:
            ValueError: If it cannot be read, or the model has no such layers.
        """
        found: dict[str, tuple[int, int] | int] = {}
        for part in text.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None or match[1] in found:
                raise UserError(f"--retrofit {text!r}: {part.strip()!r} is no stage with its layers; {EXAMPLES}")
            found[match[1]] = int(match[4]) if match[4] else (int(match[2]), int(match[3]))
        if missing := [stage for stage in STAGES if stage not in found]:
            raise UserError(f"--retrofit {text!r}: {missing[0]} is missing; {EXAMPLES}")
        chosen = cls(**_ranges(found, layers))
        if not chosen.core:
            raise UserError(f"--retrofit {text!r}: the core has no layer; {EXAMPLES}")
        order = [number for stage in STAGES for number in getattr(chosen, stage)]
        if order != sorted(set(order)) or (order and (order[0] < 0 or order[-1] >= layers)):
            shown = ", ".join(f"{stage} {_shown(getattr(chosen, stage))}" for stage in STAGES)
            raise UserError(
                f"--retrofit {text!r} asks for {shown}: layers must rise from 0 to {layers - 1}, each used once"
            )
        return chosen

    @property
    def where(self) -> dict[int, tuple[str, int]]:
        """Stage and place of every layer that is used."""
        return {number: (stage, place) for stage in STAGES for place, number in enumerate(getattr(self, stage))}


def retrofitted(reading: Reading, links: Links, chosen: Retrofit, loops: int) -> tuple[Reading, Links]:
    """The looped model, and where its tensors come from.

    Args:
        reading: The model as it was published: all layers in the core.
        links: Its tensors.
        chosen: Which layers go where.
        loops: Loops that the new model runs unless told otherwise.
    """
    width, layers = reading.model["width"], int(reading.model["core"])
    model: Mapping[str, Any] = {
        **reading.model,
        "prelude": {"layers": len(chosen.prelude)},
        "core": len(chosen.core),
        "coda": {"layers": len(chosen.coda)},
        "start": {"type": "normal", "std": math.sqrt(2 / 5), "cut": 3.0},
        "injection": {"type": "concat", "first": "input"},
    }
    moved, dropped = [], []
    for link in links.links:
        number = re.match(r"core\.blocks\.(\d+)\.", link.ours[0])
        if number is None:
            moved.append(link)
        elif int(number[1]) in chosen.where:
            moved.append(_moved(link, int(number[1]), chosen))
        else:
            dropped += [name for name, _ in link.theirs]
    left = [number for number in range(layers) if number not in chosen.where]
    notes = (
        f"prelude {_shown(chosen.prelude)}, core {_shown(chosen.core)}, coda {_shown(chosen.coda)}; "
        + (f"layers {', '.join(map(str, left))} are dropped" if left else "no layer is dropped"),
        "injection.mix is new: it passes the input on, and no state, until it is trained",
    )
    made = {"injection.mix.weight": np.eye(width, 2 * width, width, dtype=np.float32)}
    return (
        replace(reading, model=model, loops=loops, notes=reading.notes + notes),
        replace(links, links=tuple(moved), dropped=frozenset(dropped), made=made),
    )


def _ranges(found: Mapping[str, tuple[int, int] | int], layers: int) -> dict[str, range]:
    """Counts as ranges: the first for the prelude, the last for the coda, those before the coda for the core."""
    ranges: dict[str, range] = {}
    end = layers
    for stage in ("coda", "core", "prelude"):
        wanted = found[stage]
        if isinstance(wanted, tuple):
            ranges[stage] = range(wanted[0], wanted[1] + 1)
        else:
            ranges[stage] = range(wanted) if stage == "prelude" else range(end - wanted, end)
        end = ranges[stage].start if ranges[stage] else end
    return ranges


def _moved(link: Link, number: int, chosen: Retrofit) -> Link:
    stage, place = chosen.where[number]
    old, new = f"core.blocks.{number}.", f"{stage}.blocks.{place}."
    return replace(link, ours=tuple(new + name.removeprefix(old) for name in link.ours))


def _shown(numbers: range) -> str:
    return f"{numbers.start}-{numbers.stop - 1}" if numbers else "none"
