"""Combinations that cannot work, refused before anything runs, each with the nearest setting that does.

No component is named here: what a component needs, provides or lacks is data in its registration. ``SETTINGS`` is
the one table of what the trainer's settings take away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loopkit.recipe.deepspeed import OWNED_KEYS
from loopkit.recipe.depths import MOST_LOOPS, parse_depths
from loopkit.recipe.node import Origin, Path, Problem
from loopkit.recipe.resolve import Walk
from loopkit.registry.schema import Schema


@dataclass(frozen=True)
class Setting:
    """A value of the recipe that takes a capability away.

    Args:
        path: The key.
        value: The value at fault.
        lacks: The capability that is then missing.
        why: The reason, in words.
        remedy: The nearest setting that works.
    """

    path: Path
    value: Any
    lacks: str
    why: str
    remedy: str


ZERO: Path = ("train", "deepspeed", "zero_optimization")

SETTINGS = (
    Setting(
        (*ZERO, "stage"),
        3,
        "double_backward",
        "ZeRO-3 cannot differentiate a gradient",
        "set train.deepspeed.zero_optimization.stage to 2, 1 or 0",
    ),
    Setting(
        (*ZERO, "stage"),
        3,
        "whole_matrices",
        "ZeRO-3 cuts every matrix into parts that its optimizer never sees together",
        "set train.deepspeed.zero_optimization.stage to 2, 1 or 0",
    ),
    Setting(
        (*ZERO, "round_robin_gradients"),
        True,
        "whole_matrices",
        "round_robin_gradients deals the matrices of a group out in another order",
        "set train.deepspeed.zero_optimization.round_robin_gradients to false",
    ),
    Setting(
        (*ZERO, "parameter_alignment"),
        True,
        "whole_matrices",
        "parameter_alignment leaves gaps between the matrices of a group",
        "set train.deepspeed.zero_optimization.parameter_alignment to false",
    ),
)
"""Everything the trainer provides unless one of these settings is in force."""

PROVIDED_BY_TRAINER = frozenset({"double_backward", "jvp", "autocast", "whole_matrices", "streams"})


def check(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    """Every combination of a walked recipe that cannot work."""
    for rule in (_needs, _most_loops, _backprop, _loops_per, _micro_batch, _depths, _deepspeed):
        yield from rule(walk, values)


def _at(values: Any, path: Path) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _problem(walk: Walk, path: Path, message: str, hint: str, *depends: Path) -> Problem:
    return Problem(_origin(walk, path), path, message, hint, (path, *depends))


def _origin(walk: Walk, path: Path) -> Origin:
    while path not in walk.origins and path:
        path = path[:-1]
    return walk.origins.get(path, Origin("recipe"))


def _needs(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    schemas = walk.chosen
    provided = PROVIDED_BY_TRAINER.union(*(schema.traits.get("provides", ()) for schema in schemas.values()))
    for path, schema in schemas.items():
        for need in sorted(schema.traits.get("needs", ())):
            who = f"{schema.kind} '{schema.name}' needs {need}"
            for setting in SETTINGS:
                if setting.lacks == need and _at(values, setting.path) == setting.value:
                    yield _problem(walk, path, f"{who}; {setting.why}", setting.remedy, setting.path)
            for other, lacking in schemas.items():
                if need in lacking.traits.get("lacks", ()):
                    message = f"{who}, which {lacking.kind} '{lacking.name}' does not allow"
                    yield _problem(walk, path, message, f"choose another {lacking.kind} at {'.'.join(other)}", other)
            if need not in provided:
                providers = _providers(walk, need)
                hint = "choose " + " or ".join(f"{s.kind} '{s.name}'" for s in providers) if providers else ""
                kinds = {provider.kind for provider in providers}
                depends = [(*place, "type") for place, chosen in schemas.items() if chosen.kind in kinds]
                yield _problem(walk, path, f"{who}, which nothing in this recipe provides", hint, *depends)


def _providers(walk: Walk, need: str) -> list[Schema]:
    offers = walk.merger.catalog.offers
    return [offer.schema for offer in offers if offer.schema and need in offer.schema.traits.get("provides", ())]


def _most_loops(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    for path, spec in walk.specs.items():
        option = spec.schema.traits.get("maximum")
        if option and isinstance(most := spec.options.get(option), int) and most > MOST_LOOPS:
            yield _problem(walk, (*path, option), f"{most} is more loops than can be run", f"{MOST_LOOPS} or less")


def _backprop(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    backprop, schedule = _at(values, ("train", "backprop")), walk.specs.get(("train", "schedule"))
    option = schedule.schema.traits.get("maximum") if schedule else None
    most = schedule.options.get(option) if schedule and option else None
    if isinstance(backprop, int) and isinstance(most, int) and backprop > most:
        path = ("train", "backprop")
        message = f"{backprop} loops cannot carry gradient: the schedule runs at most {most}"
        yield _problem(walk, path, message, f"{most} or less, or all", ("train", "schedule", str(option)))


def _loops_per(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    """Sequences of unequal depth share one pass, whose number of loops is that of the deepest."""
    path = ("train", "loops_per")
    if _at(values, path) == "sequence":
        for place, schema in walk.chosen.items():
            if place[0] == "model" and schema.traits.get("uses_total"):
                who = f"{schema.kind} '{schema.name}' at {'.'.join(place)}"
                message = f"{who} depends on how many loops a pass has, which says nothing about one sequence of it"
                yield _problem(walk, path, message, "step or micro_step", place)


def _micro_batch(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    batch, micro = _at(values, ("train", "batch")), _at(values, ("train", "micro_batch"))
    if isinstance(batch, int) and isinstance(micro, int) and batch % micro:
        path = ("train", "micro_batch")
        fits = max(size for size in range(1, micro + 1) if batch % size == 0)
        yield _problem(
            walk, path, f"{micro} does not divide train.batch, which is {batch}", f"{fits}", ("train", "batch")
        )


def _depths(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    path = ("evaluate", "depths")
    depths = _at(values, path)
    if depths is not None:
        try:
            parse_depths(str(depths))
        except ValueError as error:
            yield _problem(walk, path, str(error), "write 4, 1-8 or 1,2,4")


def _deepspeed(walk: Walk, values: dict[str, Any]) -> Iterator[Problem]:
    written = _at(values, ("train", "deepspeed"))
    for key in sorted(set(written) & set(OWNED_KEYS)) if isinstance(written, dict) else ():
        path = ("train", "deepspeed", key)
        yield _problem(walk, path, "loopkit writes this key itself", f"set {OWNED_KEYS[key]} instead")
