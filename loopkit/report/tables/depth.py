"""The table of an evaluation: one row per depth, with the settings that make its values comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.plural import plural
from loopkit.recipe.depths import format_depths
from loopkit.report.console import WIDTH
from loopkit.report.numbers import format_amounts, format_count, format_losses, format_values
from loopkit.report.row import format_cells, is_measured
from loopkit.report.tables.layout import ruled_table, term_list

Evaluation = Mapping[str, Any]
"""The JSON of ``loopkit eval``."""


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Args:
        heading: Its heading.
        path: Keys that lead to the metric in a row of ``depths``.
        format_column: Formats its values.
    """

    heading: str
    path: tuple[str, ...]
    format_column: Callable[[Sequence[float | None]], list[str]]

    @property
    def metric(self) -> str:
        """Dotted name of the metric."""
        return ".".join(self.path)

    def cells(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Format the column, one text for each row."""
        return format_cells(rows, self.metric, self.format_column)


_USUAL = (
    Column("loss", ("loss",), format_losses),
    Column("token ppl", ("token_ppl",), format_values),
    Column("word ppl", ("word_ppl",), format_values),
    Column("bits/byte", ("bits_per_byte",), format_losses),
    Column("state norm mean", ("state_norm", "mean"), format_values),
    Column("state norm p99", ("state_norm", "p99"), format_values),
    Column("tokens/s", ("tokens_per_s",), format_amounts),
)
_NOT_METRICS = ("depth", "trained", "not_finite")


def depth_report(result: Evaluation) -> RenderableType:
    """Lay out an evaluation for a terminal of 80 columns.

    Args:
        result: The JSON of an evaluation.
    """
    columns = columns_of(result["depths"])
    parts: list[RenderableType] = [_heading(result), ""]
    for index, group in enumerate(_fit(columns, result)):
        parts += [""] * bool(index) + [_table(group, result)]
    return Group(*parts, "", _legend(result, columns))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """List the columns of all metrics that were measured at any depth, finite or not: the usual ones first."""
    columns = [column for column in _USUAL if any(is_measured(row, column.metric) for row in rows)]
    shown = {column.path for column in columns}
    further: dict[tuple[str, ...], Column] = {}
    for row in rows:
        for path in [*_paths(row), *(tuple(name.split(".")) for name in row.get("not_finite", ()))]:
            if path not in shown and path[0] not in _NOT_METRICS:
                further.setdefault(path, Column(" ".join(path).replace("_", " "), path, format_values))
    return columns + list(further.values())


def lines_of(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Format the columns, one tuple of cells for each row; tuples are empty if there is no column."""
    cells = [column.cells(rows) for column in columns]
    return [tuple(column[index] for column in cells) for index in range(len(rows))]


def markdown_lines(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Format depth and columns for a Markdown table, trained depths in bold."""
    depths = [f"**{row['depth']}**" if row.get("trained") else str(row["depth"]) for row in rows]
    return [(depth, *line) for depth, line in zip(depths, lines_of(columns, rows), strict=True)]


def _paths(row: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*above, name))
        elif isinstance(value, int | float):
            yield (*above, name)


def _fit(columns: Sequence[Column], result: Evaluation) -> list[list[Column]]:
    """Group columns so that each group fits the terminal next to the depth."""
    groups: list[list[Column]] = [[]]
    remaining = available = WIDTH - len("depth") - 3
    for column in columns:
        width = max([*map(len, column.cells(result["depths"])), *map(len, column.heading.split())]) + 3
        if width > remaining and groups[-1]:
            groups.append([])
            remaining = available
        groups[-1].append(column)
        remaining -= width
    return groups


def _table(columns: Sequence[Column], result: Evaluation) -> Table:
    table = ruled_table()
    table.add_column("depth", justify="right", no_wrap=True, vertical="bottom")
    for column in columns:
        table.add_column(column.heading.replace(" ", "\n"), justify="right", no_wrap=True, vertical="bottom")
    for row, cells in zip(result["depths"], lines_of(columns, result["depths"]), strict=True):
        trained = row.get("trained", False)
        table.add_row(f"{row['depth']}{'*' if trained else ' '}", *cells, style="bold" if trained else "")
    return table


def _heading(result: Evaluation) -> RenderableType:
    name = result.get("run") or result.get("recipe") or "a model"
    checkpoint = f", checkpoint {result['checkpoint']}" if "checkpoint" in result else ""
    checkpoint += f", {result['weights']} weights" if "weights" in result else ""
    return Group(Text(f"{name}{checkpoint}", style="bold"), term_list(facts(result)))


def facts(result: Evaluation) -> dict[str, str | None]:
    """Describe the settings that make an evaluation comparable; ``None`` if one does not apply."""
    return {
        "data": result.get("slice"),
        "tokenizer": _tokenizer(result),
        "scored": _scored(result),
        "windows": _windows(result),
        "precision": f"{result['dtype']} on {result['device']}" if "device" in result else result["dtype"],
        "passes": _passes(result),
        "tasks": _tasks(result),
        "completions": result.get("completions"),
    }


def _tokenizer(result: Evaluation) -> str | None:
    tokenizer = result.get("tokenizer")
    return f"{tokenizer['type']}, {format_count(tokenizer['size'])} entries" if tokenizer else None


def _scored(result: Evaluation) -> str | None:
    counts = " = ".join(
        f"{format_count(result[key])} {unit}"
        for key, unit in (("tokens_scored", "tokens"), ("words", "words"), ("bytes", "bytes"))
        if key in result
    )
    return counts or None


def _windows(result: Evaluation) -> str | None:
    if "window" not in result:
        return None
    protocols = {"non_overlapping": "every token once", "half_overlap": "half-overlapping, most tokens scored twice"}
    protocol = protocols.get(result["protocol"], result["protocol"])
    return f"{format_count(result['window'])} tokens, stride {format_count(result['stride'])}, {protocol}"


def _tasks(result: Evaluation) -> str | None:
    tasks = []
    for name, task in result.get("tasks", {}).items():
        counts = [
            f", {format_count(task[key])} {unit} at each depth"
            for key, unit in (("problems", "generations"), ("questions", "questions"))
            if key in task
        ]
        tasks.append(f"{name}{''.join(counts)}")
    return "; ".join(tasks) or None


def format_trained(trained: Mapping[str, Any]) -> str:
    """Format the trained depths of an evaluation: ``4``, ``1-8``, ``2,4,8``."""
    return format_depths(trained.get("depths") or range(trained["min"], trained["max"] + 1))


def _passes(result: Evaluation) -> str | None:
    if "read_as" not in result:
        return None
    read_as = {"depth": "each depth read as the last one", "trained": "depths read as in training"}[result["read_as"]]
    descriptions = {"one": "one pass for all depths", "one per depth": "one pass per depth"}
    passes = descriptions.get(result["passes"], f"{result['passes']} passes")
    batches = f"{plural(result['batches'], 'batch')} of {format_count(result['batch'])}"
    return f"{passes}, {read_as}; {plural(result['core_calls'], 'core call')} in {batches}"


def _legend(result: Evaluation, columns: Sequence[Column]) -> RenderableType:
    lines: dict[str, str | None] = {}
    if trained := result.get("trained_depths"):
        depths = format_trained(trained)
        mean = "" if trained["min"] == trained["max"] else f", mean {trained['mean']:.3g}"
        lines["*"] = f"trained depth{'' if depths.isdigit() else 's'} {depths}{mean}"
    headings = {column.heading for column in columns}
    formulas = {
        "token ppl": "exp(nll / tokens)",
        "word ppl": "exp(nll / words)",
        "bits/byte": "nll / (ln 2 * bytes)",
    }
    lines |= {heading: text for heading, text in formulas.items() if heading in headings}
    lines |= {name.replace("_", " "): unit for name, unit in result.get("units", {}).items()}
    lines |= {f"note {number}": note for number, note in enumerate(result.get("notes", ()), start=1)}
    return term_list(lines)
