"""Turn a pretrained model of one stack into prelude, core and coda.

The first layers form the prelude, the last the coda, those before the coda the core; layers between prelude and core
are dropped. A new matrix combines state and input. Its initial value passes only the input, so that one loop applies
the chosen layers in order.

Paper: arXiv:2511.07384, which does not state the initial value of the matrix; the first state is Huginn's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from loopkit.errors import UserError
from loopkit.interop.architectures import ParsedConfig
from loopkit.interop.weight_map import TensorGroup, WeightMap

STAGES = ("prelude", "core", "coda")
EXAMPLES = "write prelude=4,core=8,coda=4, or with layer numbers, prelude=0-3,core=10-17,coda=18-21"
_STAGE = re.compile(r"(prelude|core|coda)=(?:(\d+)-(\d+)|(\d+))")


@dataclass(frozen=True)
class Retrofit:
    """Layers of a stack, by their numbers from 0."""

    prelude: range
    core: range
    coda: range

    @classmethod
    def parse(cls, text: str, layers: int) -> Retrofit:
        """Parse the option.

        Args:
            text: A count or a range of layer numbers for each stage, such as ``prelude=4,core=8,coda=4``.
            layers: Number of layers of the model.

        Raises:
            UserError: If the text is malformed, or the model has no such layers.
        """
        stages: dict[str, tuple[int, int] | int] = {}
        for part in text.split(","):
            match = _STAGE.fullmatch(part.strip())
            if match is None or match[1] in stages:
                raise UserError(f"--retrofit {text!r}: {part.strip()!r} is not a stage with its layers; {EXAMPLES}")
            stages[match[1]] = int(match[4]) if match[4] else (int(match[2]), int(match[3]))
        if missing := [stage for stage in STAGES if stage not in stages]:
            raise UserError(f"--retrofit {text!r}: {missing[0]} is missing; {EXAMPLES}")
        chosen = cls(**_ranges(stages, layers))
        if not chosen.core:
            raise UserError(f"--retrofit {text!r}: the core needs a layer; {EXAMPLES}")
        order = [number for stage in STAGES for number in getattr(chosen, stage)]
        if order != sorted(set(order)) or (order and (order[0] < 0 or order[-1] >= layers)):
            ranges = ", ".join(f"{stage} {_format(getattr(chosen, stage))}" for stage in STAGES)
            raise UserError(
                f"--retrofit {text!r} means {ranges}: layers must rise from 0 to {layers - 1}, each used once"
            )
        return chosen

    @property
    def places(self) -> dict[int, tuple[str, int]]:
        """Stage and index in it of every layer that is used."""
        return {number: (stage, place) for stage in STAGES for place, number in enumerate(getattr(self, stage))}


def retrofit_model(
    parsed: ParsedConfig, weight_map: WeightMap, chosen: Retrofit, loops: int
) -> tuple[ParsedConfig, WeightMap]:
    """Build the configuration and the weight map of the looped model.

    Args:
        parsed: The published model: all layers in the core.
        weight_map: Its tensors.
        chosen: The layers of each stage.
        loops: Loops that the new model runs by default.
    """
    width, layers = parsed.model["width"], int(parsed.model["core"])
    model: Mapping[str, Any] = {
        **parsed.model,
        "prelude": {"layers": len(chosen.prelude)},
        "core": len(chosen.core),
        "coda": {"layers": len(chosen.coda)},
        "start": {"type": "normal", "std": math.sqrt(2 / 5), "truncate": 3.0},
        "injection": {"type": "concat", "init": "input"},
    }
    moved, dropped = [], []
    for group in weight_map.groups:
        number = re.match(r"core\.blocks\.(\d+)\.", group.native[0])
        if number is None:
            moved.append(group)
        elif int(number[1]) in chosen.places:
            moved.append(_move(group, int(number[1]), chosen))
        else:
            dropped += [name for name, _ in group.published]
    remaining = [number for number in range(layers) if number not in chosen.places]
    notes = (
        f"prelude {_format(chosen.prelude)}, core {_format(chosen.core)}, coda {_format(chosen.coda)}; "
        + (f"layers {', '.join(map(str, remaining))} are dropped" if remaining else "no layer is dropped"),
        "injection.mix is new: before training it passes only the input, so further loops change nothing",
    )
    new = {"injection.mix.weight": torch.cat([torch.zeros(width, width), torch.eye(width)], dim=1)}
    return (
        replace(parsed, model=model, loops=loops, notes=parsed.notes + notes),
        replace(weight_map, groups=tuple(moved), dropped=frozenset(dropped), new=new),
    )


def _ranges(stages: Mapping[str, tuple[int, int] | int], num_layers: int) -> dict[str, range]:
    """Turn counts into ranges: the first layers, the last, and for the core those before the coda."""
    ranges: dict[str, range] = {}
    end = num_layers
    for stage in ("coda", "core", "prelude"):
        layers = stages[stage]
        if isinstance(layers, tuple):
            ranges[stage] = range(layers[0], layers[1] + 1)
        else:
            ranges[stage] = range(layers) if stage == "prelude" else range(end - layers, end)
        end = ranges[stage].start if ranges[stage] else end
    return ranges


def _move(group: TensorGroup, number: int, chosen: Retrofit) -> TensorGroup:
    stage, place = chosen.places[number]
    old, new = f"core.blocks.{number}.", f"{stage}.blocks.{place}."
    return replace(group, native=tuple(new + name.removeprefix(old) for name in group.native))


def _format(numbers: range) -> str:
    return f"{numbers.start}-{numbers.stop - 1}" if numbers else "none"
