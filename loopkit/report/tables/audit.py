"""An audit for a terminal of 80 columns: the verdicts, then the figures, then what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loopkit.recipe.depths import format_depths
from loopkit.report.numbers import figure

Found = Mapping[str, Any]
"""The JSON of ``loopkit audit``, read back or not."""

_GOOD = ("controlled", "stable")
_CLOSE = 0.01  # what the spectral radius is known to


def audit_report(found: Found) -> RenderableType:
    """Everything an audit found.

    Args:
        found: Its JSON.
    """
    scale, recurrence = found["scale"], found["recurrence"]
    parts: list[RenderableType] = [Text(found["subject"], style="bold"), ""]
    if not found.get("reads_input", True):  # audits written before this was measured lack it
        parts += [_verdict("input", "dead path"), _pairs({"read": "no: other tokens give the same logits"}), ""]
    parts += [_verdict("scale", scale["verdict"]), _pairs(scale_reasons(scale)), ""]
    parts += [_verdict("recurrence", recurrence["verdict"]), _pairs(dict(_radii(recurrence))), ""]
    parts += [_figures(scale), ""]
    parts.append(_pairs({"what to change": what_to_change(found), "measured on": found["measured_on"]}))
    parts += [_pairs({"note": note}) for note in found["notes"]]
    return Group(*parts)


def scale_reasons(scale: Found) -> dict[str, str]:
    """Visible, active and controlled, each with the figure that decides."""
    return {"visible": _visible(scale), "active": _active(scale), "controlled": _controlled(scale)}


def _visible(scale: Found) -> str:
    readouts = scale["readouts"]
    if not readouts:
        return "no: no supervised readout teaches the state"
    least = figure(max(min(view["fraction"].values()) for view in readouts), 2)
    if not scale["visible"]:
        return f"no: the radial fraction of the supervised readouts falls to {least}"
    loops = format_depths([view["loop"] for view in readouts if view["sees"]])
    return f"yes: to the readouts of loops {loops}, radial fraction up to {least}"


def _active(scale: Found) -> str:
    motion = scale["recurrence"]
    if motion is None:
        return "no: there is no second loop"
    said = (
        f"what leaves a loop grows as the power {motion['power']:.2f} of what enters, "
        f"the carry alone {motion['power_of_carry']:.2f}"
    )
    if not scale["active"]:
        return f"no: {said}"
    growth = f"; in the long run each adds {figure(lemma['growth'], 2)} RMS" if (lemma := motion["lemma_2"]) else ""
    return f"yes: {said}{growth}"


def _controlled(scale: Found) -> str:
    reasons = []
    if scale["visible"]:
        reasons.append("by the supervised readouts that see it")
    reasons += [f"by {name}" for name in scale["held_by"] if name != "supervision" or not scale["visible"]]
    if not scale["active"]:
        reasons.append("because it does not go from loop to loop")
    if reasons:
        return "yes: " + ", ".join(reasons)
    weak = [term["name"] for term in scale["terms"] if max(map(abs, term["slope"].values())) >= 1e-3]
    return "no" + "".join(f": {name} answers to it, but does not pull a large state back" for name in weak[:1])


def _radii(recurrence: Found) -> Iterator[tuple[str, str]]:
    for radius in recurrence.get("spectral_radius", ()):
        close = ", within the 1 % of the measurement" if abs(radius["max"] - 1) < _CLOSE else ""
        yield (
            f"after loop {radius['depth']}",
            f"spectral radius {radius['max']:.3f} at most, {radius['mean']:.3f} on average over sequences{close}",
        )


def what_to_change(found: Found) -> str:
    """What to do about it, with the keys to set."""
    said = []
    if found["scale"]["verdict"] == "blind spot":
        remedies = found["remedies"].items()
        choices = [f"set {key} to {_or(names)}" for key, names in remedies if key.startswith("model.")]
        choices += [f"add {_or(names)} to {key}" for key, names in remedies if not key.startswith("model.")]
        said.append(f"{'; or '.join(choices)} (each tried here)." if choices else "No single built-in part ends it.")
    if found["recurrence"]["verdict"] == "unstable":
        said.append(
            "One more loop magnifies small changes: train on varying depths (train.schedule), normalise the stream "
            "(model.block.placement, model.carry), or penalise the loop's Jacobian (objective.regularizers)."
        )
    return " ".join(said) or "nothing"


def _or(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _verdict(name: str, verdict: str) -> Text:
    colour = "green" if verdict in _GOOD else "yellow" if verdict.startswith("unknown") else "red"
    return Text.assemble((f"{name}: ", "bold"), (verdict, f"bold {colour}"))


def _pairs(lines: Mapping[str, str]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=10)
    grid.add_column(overflow="fold")
    for term, text in lines.items():
        grid.add_row(term, text)
    return Padding(grid, (0, 0, 0, 2))


def _figures(scale: Found) -> RenderableType:
    rows = list(_rows(scale))
    multiples = sorted({multiple for _, values in rows for multiple in values}, key=int)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("state multiplied by", overflow="fold")
    for multiple in multiples:
        table.add_column(f"{int(multiple):,}", justify="right", no_wrap=True)
    for name, values in rows:
        table.add_row(name, *(figure(values.get(multiple), 3) for multiple in multiples))
    return Padding(table, (0, 0, 0, 2))


def _rows(scale: Found) -> Iterator[tuple[str, Mapping[Any, float]]]:
    for view in scale["readouts"]:
        yield f"radial fraction, readout of loop {view['loop']}", view["fraction"]
    for term in scale["terms"]:
        yield f"slope of {term['name']}, nats", term["slope"]
    if motion := scale["recurrence"]:
        yield "update along the state, RMS", motion["radial"]
        yield "update across the state, RMS", motion["angular"]
        yield "turn of the state, 0 to 2", motion["turn"]
