"""An audit for a terminal of 80 columns: the verdicts, then the figures, then what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

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
    least = [min(view["fraction"].values()) for view in readouts]
    if scale["visible"]:
        loops = ", ".join(str(view["loop"]) for view in readouts if view["sees"])
        return f"yes: the readouts of loops {loops} see it, radial fraction {figure(max(least), 2)}"
    return f"no: no supervised readout sees it, radial fraction {figure(max(least), 2)} at most"


def _active(scale: Found) -> str:
    motion = scale["recurrence"]
    if motion is None:
        return "no: there is no second loop"
    kept, carried = (f"{100 * motion[name]:.0f} %" for name in ("kept", "kept_by_carry"))
    said = f"one loop keeps {kept} of a change in scale (carry alone {carried})"
    if lemma := motion["lemma_2"]:
        said += f"; over many loops the state grows by {figure(lemma['growth'], 2)} RMS each"
    return f"{'yes' if scale['active'] else 'no'}: {said}"


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
        choices = [f"{key} to {_or(names)}" for key, names in found["remedies"].items() if key.startswith("model.")]
        choices += [f"add {_or(names)} to {key}" for key, names in found["remedies"].items() if not key.startswith("model.")]
        said.append(f"set {'; or '.join(choices)} (each tried here)." if choices else "no single built-in component ends it.")
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
    multiples = list(rows[0][1]) if rows else []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("state multiplied by", overflow="fold")
    for multiple in multiples:
        table.add_column(str(multiple), justify="right", no_wrap=True)
    for name, values in rows:
        table.add_row(name, *(figure(values[multiple], 3) for multiple in multiples))
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
