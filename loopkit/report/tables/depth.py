"""The table of an evaluation: one row per depth, with everything that makes its figures comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loopkit.recipe.depths import format_depths
from loopkit.report.console import WIDTH
from loopkit.report.numbers import amounts, count, figures, nats
from loopkit.report.row import cells, is_measured

Evaluation = Mapping[str, Any]
"""The JSON of ``loopkit eval``, read back."""


@dataclass(frozen=True)
class Column:
    """One column: its heading, its place in a row of ``depths`` and how its numbers are written."""

    heading: str
    path: tuple[str, ...]
    write: Callable[[Sequence[float | None]], list[str]]

    @property
    def figure(self) -> str:
        """Its place as one name."""
        return ".".join(self.path)

    def cells(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """The column as text, row by row."""
        return cells(rows, self.figure, self.write)


_FIRST = (
    Column("loss", ("loss",), nats),
    Column("token ppl", ("token_ppl",), figures),
    Column("word ppl", ("word_ppl",), figures),
    Column("bits/byte", ("bits_per_byte",), nats),
    Column("state norm mean", ("state_norm", "mean"), figures),
    Column("state norm p99", ("state_norm", "p99"), figures),
    Column("tokens/s", ("tokens_per_s",), amounts),
)
_NOT_FIGURES = ("depth", "trained", "not_finite")


def depth_report(result: Evaluation) -> RenderableType:
    """Everything an evaluation found, for a terminal of 80 columns.

    Args:
        result: The JSON of an evaluation.
    """
    columns = columns_of(result["depths"])
    parts: list[RenderableType] = [_heading(result), ""]
    for number, group in enumerate(_fit(columns, result)):
        parts += [""] * bool(number) + [_table(group, result)]
    return Group(*parts, "", _legend(result, columns))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The usual columns that were measured anywhere, then whatever else was; a figure need not be finite."""
    usual = [column for column in _FIRST if any(is_measured(row, column.figure) for row in rows)]
    shown = {column.path for column in usual}
    others: dict[tuple[str, ...], Column] = {}
    for row in rows:
        for path in [*_paths(row), *(tuple(name.split(".")) for name in row.get("not_finite", ()))]:
            if path not in shown and path[0] not in _NOT_FIGURES:
                others.setdefault(path, Column(" ".join(path).replace("_", " "), path, figures))
    return usual + list(others.values())


def lines_of(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The columns as text, a line for each row; lines of nothing where there is no column."""
    written = [column.cells(rows) for column in columns]
    return [tuple(column[number] for column in written) for number in range(len(rows))]


def _paths(row: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*above, name))
        elif isinstance(value, int | float):
            yield (*above, name)


def _fit(columns: Sequence[Column], result: Evaluation) -> list[list[Column]]:
    """Columns in groups, each of which fits the width beside the depth."""
    groups: list[list[Column]] = [[]]
    room = whole = WIDTH - len("depth") - 3
    for column in columns:
        need = max([*map(len, column.cells(result["depths"])), *map(len, column.heading.split())]) + 3
        if need > room and groups[-1]:
            groups.append([])
            room = whole
        groups[-1].append(column)
        room -= need
    return groups


def _table(columns: Sequence[Column], result: Evaluation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("depth", justify="right", no_wrap=True, vertical="bottom")
    for column in columns:
        table.add_column(column.heading.replace(" ", "\n"), justify="right", no_wrap=True, vertical="bottom")
    for row, written in zip(result["depths"], lines_of(columns, result["depths"]), strict=True):
        trained = row.get("trained", False)
        table.add_row(f"{row['depth']}{'*' if trained else ' '}", *written, style="bold" if trained else "")
    return table


def _heading(result: Evaluation) -> RenderableType:
    name = result.get("run") or result.get("recipe") or "a model"
    checkpoint = f", checkpoint {result['checkpoint']}" if "checkpoint" in result else ""
    return Group(Text(f"{name}{checkpoint}", style="bold"), _pairs(facts(result)))


def facts(result: Evaluation) -> dict[str, str | None]:
    """The settings that make an evaluation comparable, in words."""
    return {
        "data": result.get("slice"),
        "tokenizer": _tokenizer(result),
        "scored": _scored(result),
        "windows": _windows(result),
        "arithmetic": f"{result['dtype']} on {result['device']}" if "device" in result else result["dtype"],
        "passes": _passes(result),
        "asked": _asked(result),
        "texts": result.get("completions"),
    }


def _pairs(lines: Mapping[str, str | None]) -> RenderableType:
    """Terms and what they say, in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for term, text in lines.items():
        if text is not None:
            grid.add_row(term, text)
    return Padding(grid, (0, 0, 0, 2))


def _tokenizer(result: Evaluation) -> str | None:
    tokenizer = result.get("tokenizer")
    return f"{tokenizer['type']}, {count(tokenizer['size'])} entries" if tokenizer else None


def _scored(result: Evaluation) -> str | None:
    counts = " = ".join(
        f"{count(result[key])} {unit}"
        for key, unit in (("tokens_scored", "tokens"), ("words", "words"), ("bytes", "bytes"))
        if key in result
    )
    return counts or None


def _windows(result: Evaluation) -> str | None:
    if "window" not in result:
        return None
    protocols = {"non_overlapping": "every token once", "half_overlap": "half-overlapping, most tokens scored twice"}
    protocol = protocols.get(result["protocol"], result["protocol"])
    return f"{count(result['window'])} tokens, stride {count(result['stride'])}, {protocol}"


def _asked(result: Evaluation) -> str | None:
    """What texts were written for, task by task."""
    return (
        "; ".join(
            f"{name}, {count(task['problems'])} texts at each depth" if "problems" in task else name
            for name, task in result.get("tasks", {}).items()
        )
        or None
    )


def spell_trained(trained: Mapping[str, Any]) -> str:
    """The trained depths of an evaluation's JSON: ``4``, ``1-8``, ``2,4,8``."""
    return format_depths(trained.get("depths") or range(trained["min"], trained["max"] + 1))


def _passes(result: Evaluation) -> str | None:
    if "read_as" not in result:
        return None
    read = {"depth": "each depth read as if it were the last", "trained": "depths read as in training"}[
        result["read_as"]
    ]
    spelt = {"one": "one pass for all depths", "one per depth": "one pass per depth"}
    passes = spelt.get(result["passes"], f"{result['passes']} passes")
    batches = (
        f"{count(result['core_calls'])} core calls in {count(result['batches'])} batches of {count(result['batch'])}"
    )
    return f"{passes}, {read}; {batches}"


def _legend(result: Evaluation, columns: Sequence[Column]) -> RenderableType:
    lines: dict[str, str | None] = {}
    if trained := result.get("trained_depths"):
        depths = spell_trained(trained)
        mean = "" if trained["min"] == trained["max"] else f", mean {trained['mean']:.3g}"
        lines["*"] = f"trained depth{'' if depths.isdigit() else 's'} {depths}{mean}"
    shown = {column.heading for column in columns}
    formulas = {
        "token ppl": "exp(nll / tokens)",
        "word ppl": "exp(nll / words)",
        "bits/byte": "nll / (ln 2 * bytes)",
    }
    lines |= {heading: text for heading, text in formulas.items() if heading in shown}
    lines |= {name.replace("_", " "): unit for name, unit in result.get("units", {}).items()}
    lines |= {f"note {number}": note for number, note in enumerate(result.get("notes", ()), start=1)}
    return _pairs(lines)
