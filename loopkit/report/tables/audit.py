"""An audit for a terminal of 80 columns: the verdicts, the measured values, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from loopkit.recipe.depths import format_depths
from loopkit.report.numbers import format_value
from loopkit.report.tables.layout import ruled_table, term_list

Audit = Mapping[str, Any]
"""The JSON of ``loopkit audit``, or a part of it."""

_PASSING = ("controlled", "stable")
_TERM_WIDTH = 10
_TOLERANCE = 0.01  # accuracy of the spectral radius


def audit_report(audit: Audit) -> RenderableType:
    """Lay out an audit.

    Args:
        audit: Its JSON.
    """
    scale, recurrence = audit["scale"], audit["recurrence"]
    parts: list[RenderableType] = [Text(audit["subject"], style="bold"), ""]
    if not audit.get("reads_input", True):  # older audits lack the key
        reason = {"used": "no: the logits do not depend on the tokens"}
        parts += [_verdict("input", "dead path"), term_list(reason, _TERM_WIDTH), ""]
    parts += [_verdict("scale", scale["verdict"]), term_list(scale_reasons(scale), _TERM_WIDTH), ""]
    reasons = dict(_radii(recurrence)) | dict(_settling(recurrence))
    parts += [_verdict("recurrence", recurrence["verdict"]), term_list(reasons, _TERM_WIDTH), ""]
    parts += [_values_table(scale), ""]
    parts.append(term_list({"what to change": what_to_change(audit), "measured on": audit["measured_on"]}))
    parts += [term_list({"note": note}, _TERM_WIDTH) for note in audit["notes"]]
    return Group(*parts)


def scale_reasons(scale: Audit) -> dict[str, str]:
    """Explain visible, active and controlled, each with the value that decides."""
    return {"visible": _visible(scale), "active": _active(scale), "controlled": _controlled(scale)}


def _visible(scale: Audit) -> str:
    readouts = scale["readouts"]
    if not readouts:
        return "no: no supervised readout passes a gradient to the state"
    fraction = format_value(max(min(view["fraction"].values()) for view in readouts), 2)
    if not scale["visible"]:
        return f"no: the radial fraction of the supervised readouts falls to {fraction}"
    loops = format_depths([view["loop"] for view in readouts if view["sees"]])
    return f"yes: in the readouts of loops {loops}, radial fraction up to {fraction}"


def _active(scale: Audit) -> str:
    geometry = scale["recurrence"]
    if geometry is None:
        return "no: the model runs only one loop"
    powers = (
        f"the output norm of a loop grows as (input norm)^{geometry['power']:.2f}, "
        f"that of the carry as (input norm)^{geometry['power_of_carry']:.2f}"
    )
    if not scale["active"]:
        return f"no: {powers}"
    if lemma := geometry["lemma_2"]:
        powers += f"; in the long run each loop adds {format_value(lemma['growth'], 2)} RMS"
    return f"yes: {powers}"


def _controlled(scale: Audit) -> str:
    reasons = []
    if scale["visible"]:
        reasons.append("by the supervised readouts that depend on it")
    reasons += [f"by {name}" for name in scale["held_by"] if name != "supervision" or not scale["visible"]]
    if not scale["active"]:
        reasons.append("because it is not passed from loop to loop")
    if reasons:
        return "yes: " + ", ".join(reasons)
    weak = [term["name"] for term in scale["terms"] if max(map(abs, term["slope"].values())) >= 1e-3]
    return "no" + "".join(f": {name} depends on it, but does not pull a large state back" for name in weak[:1])


def _radii(recurrence: Audit) -> Iterator[tuple[str, str]]:
    for radius in recurrence.get("spectral_radius", ()):
        margin = ", within the 1 % accuracy of the measurement" if abs(radius["max"] - 1) < _TOLERANCE else ""
        yield (
            f"after loop {radius['depth']}",
            f"spectral radius {radius['max']:.3f} at most, {radius['mean']:.3f} on average over sequences{margin}",
        )


def _settling(recurrence: Audit) -> Iterator[tuple[str, str]]:
    """Describe the path of the state over many loops; older audits lack it."""
    if (path := recurrence.get("settling")) is None:
        return
    rate, power, growth = (path[name] for name in ("rate", "power", "growth"))
    distance = "the distance between successive states"
    if path["kind"] == "settling":
        meaning = (
            "the state comes to rest" if rate is None else f"{distance} shrinks by a factor of {rate:.3f} per loop"
        )
    elif path["kind"] == "marginal":
        meaning = f"{distance} changes as (loop)^{power:.2f}, and the norm stays bounded"
    else:
        meaning = "the state is not finite" if growth is None else f"its norm grows as (loop)^{growth:.2f}"
    yield f"over {path['loops']} loops", f"{path['kind']}: {meaning}"


def what_to_change(audit: Audit) -> str:
    """Explain how to fix what the audit found, with the keys to set."""
    advice = []
    if audit["scale"]["verdict"] == "blind spot":
        remedies = audit["remedies"].items()
        choices = [f"set {key} to {_join_or(names)}" for key, names in remedies if key.startswith("model.")]
        choices += [f"add {_join_or(names)} to {key}" for key, names in remedies if not key.startswith("model.")]
        none = "No single built-in component removes the blind spot."
        advice.append(f"{'; or '.join(choices)} (each was tested)." if choices else none)
    if audit["recurrence"]["verdict"] == "unstable":
        advice.append(
            "One more loop magnifies small changes: train on varying depths (train.schedule), normalize the stream "
            "(model.block.placement, model.carry), or penalize the loop's Jacobian (objective.regularizers)."
        )
    return " ".join(advice) or "nothing"


def _join_or(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _verdict(name: str, verdict: str) -> Text:
    colour = "green" if verdict in _PASSING else "yellow" if verdict.startswith("unknown") else "red"
    return Text.assemble((f"{name}: ", "bold"), (verdict, f"bold {colour}"))


def _values_table(scale: Audit) -> RenderableType:
    rows = list(_rows(scale))
    multiples = sorted({multiple for _, values in rows for multiple in values}, key=int)
    table = ruled_table()
    table.add_column("state multiplied by", overflow="fold")
    for multiple in multiples:
        table.add_column(f"{int(multiple):,}", justify="right", no_wrap=True)
    for name, values in rows:
        table.add_row(name, *(format_value(values.get(multiple), 3) for multiple in multiples))
    return Padding(table, (0, 0, 0, 2))


def _rows(scale: Audit) -> Iterator[tuple[str, Mapping[Any, float]]]:
    for view in scale["readouts"]:
        yield f"radial fraction, readout of loop {view['loop']}", view["fraction"]
    for term in scale["terms"]:
        yield f"slope of {term['name']}, nats", term["slope"]
    if geometry := scale["recurrence"]:
        yield "update along the state, RMS", geometry["radial"]
        yield "update across the state, RMS", geometry["angular"]
        yield "turn of the state, 0 to 2", geometry["turn"]
