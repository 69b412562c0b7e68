"""Reject combinations that cannot work before anything runs, each with the nearest setting that works.

No component is named here: its registration states what it needs, provides or lacks. ``SETTINGS`` lists the
capabilities that settings of the trainer remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loopkit.plural import plural
from loopkit.recipe.authoring.describe import format_divisors
from loopkit.recipe.depths import MOST_LOOPS, parse_depths
from loopkit.recipe.node import Origin, Path, Problem, value_at
from loopkit.recipe.resolve import Resolver, UnknownKey
from loopkit.recipe.validation import weights
from loopkit.recipe.validation.deepspeed import OWNED_KEYS, unknown_keys, wrong_values
from loopkit.registry.schema import Schema


@dataclass(frozen=True)
class Setting:
    """A value of the recipe that removes a capability.

    Args:
        path: The key.
        value: The value.
        lacks: The capability that is then missing.
        why: The reason.
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
        "ZeRO-3 cuts every matrix into parts, and its optimizer has one part at a time",
        "set train.deepspeed.zero_optimization.stage to 2, 1 or 0",
    ),
    Setting(
        (*ZERO, "round_robin_gradients"),
        True,
        "whole_matrices",
        "round_robin_gradients changes the order of the matrices of a group",
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
"""Settings that remove a capability of the trainer."""

PROVIDED_BY_TRAINER = frozenset({"double_backward", "autocast", "whole_matrices", "streams"})


Rule = Callable[[Resolver, dict[str, Any]], Iterator[Problem]]


def check(walk: Resolver, values: dict[str, Any], rules: Iterable[Rule]) -> Iterator[Problem]:
    """Yield a problem for each combination that cannot work, according to some rules."""
    for rule in rules:
        yield from rule(walk, values)


def _problem(walk: Resolver, path: Path, message: str, hint: str, *depends: Path) -> Problem:
    return Problem(_origin(walk, path), path, message, hint, (path, *depends))


def _origin(walk: Resolver, path: Path) -> Origin:
    while path not in walk.origins and path:
        path = path[:-1]
    return walk.origins.get(path, Origin("recipe"))


def _needs(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    schemas = walk.chosen
    provided = PROVIDED_BY_TRAINER.union(*(schema.traits.get("provides", ()) for schema in schemas.values()))
    for path, schema in schemas.items():
        for need in sorted(schema.traits.get("needs", ())):
            who = f"{schema.kind} '{schema.name}' needs {need}"
            for setting in SETTINGS:
                if setting.lacks == need and value_at(values, setting.path) == setting.value:
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


def _providers(walk: Resolver, need: str) -> list[Schema]:
    offers = walk.merger.catalog.offers
    return [offer.schema for offer in offers if offer.schema and need in offer.schema.traits.get("provides", ())]


def _most_loops(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    for path, spec in walk.specs.items():
        option = spec.schema.traits.get("maximum")
        if option and isinstance(most := spec.options.get(option), int) and most > MOST_LOOPS:
            yield _problem(walk, (*path, option), f"{most} is more loops than can be run", f"{MOST_LOOPS} or less")


def _backprop(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    backprop, schedule = value_at(values, ("train", "backprop")), walk.specs.get(("train", "schedule"))
    option = schedule.schema.traits.get("maximum") if schedule else None
    most = schedule.options.get(option) if schedule and option else None
    if isinstance(backprop, int) and isinstance(most, int) and backprop > most:
        path = ("train", "backprop")
        message = f"{plural(backprop, 'loop')} cannot carry gradient: the schedule runs at most {most}"
        yield _problem(walk, path, message, f"use {most} or less, or all", ("train", "schedule", str(option)))


def _stopping_gate(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Whether a sequence ends in the last loops is not known before they run, so truncation has no fixed place."""
    path, gate = ("train", "backprop"), walk.chosen.get(("model", "gate"))
    if gate is not None and gate.traits.get("stops") and isinstance(backprop := value_at(values, path), int):
        message = f"gate '{gate.name}' may end a sequence in any loop, so all loops must carry gradient, not {backprop}"
        yield _problem(walk, path, message, "all", ("model", "gate"))


def _loops_per(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems for ``loops_per: sequence``, where one pass has the number of loops of its deepest sequence."""
    path = ("train", "loops_per")
    if value_at(values, path) == "sequence":
        for place, schema in walk.chosen.items():
            if place[0] in ("model", "objective") and schema.traits.get("uses_total"):
                who = f"{schema.kind} '{schema.name}' at {'.'.join(place)}"
                message = f"{who} depends on how many loops a pass has, which does not describe a single sequence"
                yield _problem(walk, path, message, "step or micro_step", place)


def _micro_batch(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    batch, micro = value_at(values, ("train", "batch")), value_at(values, ("train", "micro_batch"))
    if isinstance(batch, int) and isinstance(micro, int) and batch % micro:
        path = ("train", "micro_batch")
        yield _problem(
            walk,
            path,
            f"{micro} does not divide train.batch ({batch})",
            f"use {format_divisors(batch)}",
            ("train", "batch"),
        )


def _depths(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    path = ("evaluate", "depths")
    depths = value_at(values, path)
    if depths is not None:
        try:
            parse_depths(str(depths))
        except ValueError as error:
            yield _problem(walk, path, str(error), "write 4, 1-8 or 1,2,4")


def _deepspeed(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems for keys that loopkit writes, unknown DeepSpeed keys, and values that DeepSpeed refuses."""
    path = ("train", "deepspeed")
    node = walk.maps.get(path)
    if node is None:
        return
    for key in sorted(set(node.value) & set(OWNED_KEYS)):
        origin, why = node.value[key].origin, "loopkit writes this key itself"
        yield Problem(origin, (*path, key), why, f"set {OWNED_KEYS[key]} instead", ((*path, key),))
    walk.unknown += [UnknownKey(*entry) for entry in unknown_keys(node, path) if entry[1] not in OWNED_KEYS]
    for place, item, why in wrong_values(node, path):
        yield Problem(item.origin, place, why, "", (place,))


def _figures(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each pair of tasks or probes with figures of the same name."""
    owners: dict[str, Path] = {}
    for path, schema in walk.chosen.items():
        if path[:2] in (("evaluate", "tasks"), ("evaluate", "probes")):
            for figure in sorted(schema.traits.get("figures", ())):
                if (other := owners.setdefault(figure, path)) != path:
                    message = f"{'.'.join(other)} and it both give a figure called {figure!r}"
                    yield _problem(walk, path, message, f"remove one: --set {'.'.join(path)}=false", other)
                    break


def _stride(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    path, length = ("evaluate", "stride"), ("data", "length")
    stride, window = value_at(values, path), value_at(values, length)
    source = walk.chosen.get(("data", "source"))
    cut = (
        source is not None
        and source.traits.get("layout") == "stream"
        and value_at(values, ("evaluate", "protocol")) == "non_overlapping"
    )
    if cut and isinstance(stride, int) and isinstance(window, int) and stride > window:
        message = f"{stride} is more than data.length ({window}): tokens between windows would not be scored"
        yield _problem(walk, path, message, f"use {window} or less", length)


def _best(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for a figure or a depth that no evaluation during training has."""
    place = ("train", "checkpoint", "best")
    figure, depth = value_at(values, (*place, "figure")), value_at(values, (*place, "depth"))
    if not isinstance(figure, str):
        return
    measurements = {
        path: schema
        for path, schema in walk.chosen.items()
        if path[:2] in (("evaluate", "tasks"), ("evaluate", "probes"))
    }
    figures = set().union(*(schema.traits.get("figures", ()) for schema in measurements.values()))
    declared = all("figures" in schema.traits for schema in measurements.values())
    if declared and figure.partition(".")[0] not in figures:
        hint = f"figures: {', '.join(sorted(figures)) or 'none, as evaluate has neither tasks nor probes'}"
        yield _problem(walk, (*place, "figure"), f"nothing under evaluate measures {figure!r}", hint, ("evaluate",))
    depths = value_at(values, ("evaluate", "depths"))
    if isinstance(depth, int) and depths is not None and depth not in _depths_in(str(depths)):
        message = f"{depth} is not among evaluate.depths, which is {depths}"
        yield _problem(walk, (*place, "depth"), message, "add it there", ("evaluate", "depths"))


def _depths_in(text: str) -> list[int]:
    try:
        return parse_depths(text)
    except ValueError:
        return []


def _input(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem if the logits of a model cannot depend on its input."""
    start, path = ("model", "start"), ("model", "injection")
    ends, types = [walk.chosen.get(start), walk.chosen.get(path)], [(*start, "type"), (*path, "type")]
    if all(end is not None and end.traits.get("ignores_input") for end in ends) and not _reads_tokens(walk):
        why = "injection '{1.name}' adds no input and start '{0.name}' has none: logits would not depend on the tokens"
        yield _problem(walk, path, why.format(*ends), "choose injection 'add', or start 'embedding'", *types)


def _reads_tokens(walk: Resolver) -> bool:
    """Check whether a component of the model may read the tokens themselves."""
    for path, spec in walk.specs.items():
        if path[0] == "model" and "vocabulary" in spec.schema.wiring:
            option = spec.schema.traits.get("reads_tokens")
            if "reads_tokens" not in spec.schema.traits or (option and spec.options.get(option) is not None):
                return True
    return False


OF_EVALUATION: tuple[Rule, ...] = (_depths, _figures, _stride)
"""Rules about what an evaluation of a trained model may change."""

RULES: tuple[Rule, ...] = (
    _needs,
    _most_loops,
    _backprop,
    _stopping_gate,
    _loops_per,
    _micro_batch,
    _deepspeed,
    _best,
    _input,
    *weights.RULES,
    *OF_EVALUATION,
)
