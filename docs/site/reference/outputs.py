"""The pages of what loopkit writes: the run folder, and the JSON of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.site.reference.source_text import class_doc, properties
from loopkit.registry.source import argument_docs
from loopkit.report.pages.markdown import prose, table

RUN = """A run is one folder, `runs/NAME/`. NAME is the recipe, or RECIPE-PROFILE, with a short hash of the resolved
recipe where `--set` was used, or what `--name` says. A folder that exists is never written over: `--resume` goes on
with it. Checkpoints appear whole or not at all; every file in one is listed with its checksum.
"""


def run_folder_page(folder: Path) -> str:
    """The run folder, from the class that knows it.

    Args:
        folder: Source file of ``RunFolder``.
    """
    found = properties(folder, "RunFolder")
    rows = [(f"`{place}`", prose(doc)) for doc, place in found.values() if place]
    return f"# The run folder\n\n{RUN}\n" + table(("file or folder", "what it holds"), rows) + "\n"


def evaluation_page(result: Path, rows: Mapping[str, str], units: Mapping[str, str]) -> str:
    """The JSON of ``loopkit eval --json``, from the dataclasses that it is written from.

    Args:
        result: Source file of the dataclasses.
        rows: Meaning of the keys that every row of ``depths`` may have.
        units: Definition and unit of measured figures, as evaluations carry them.
    """
    parts = [
        "# The JSON of an evaluation",
        "`loopkit eval --json` prints it, and every evaluation is kept so in `eval/` of its run. **What was not "
        "measured is absent, never zero.** A figure that is not finite is only named, in its row's `not_finite`; in "
        "`tables` it is `null`, and named in the result's own `not_finite`.",
        "## Where the model came from",
        _fields(result, "Origin"),
        "## How it was evaluated",
        _fields(result, "Conditions"),
        "## What was found",
        _fields(result, "Result", without=("origin", "conditions", "trained")),
        "`trained_depths` holds the depths of training:",
        _fields(result, "Trained"),
        "## A row of `depths`",
        table(("key", "meaning"), [(f"`{key}`", prose(text)) for key, text in rows.items()]),
    ]
    if units:
        parts += [
            "## Figures of probes",
            "Each stands in the row of its depth, or under `tables`; an evaluation that has them says what they are in "
            "`units`.",
            table(
                ("figure", "definition and unit"), [(f"`{key}`", prose(text)) for key, text in sorted(units.items())]
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _fields(file: Path, name: str, without: Iterable[str] = ()) -> str:
    docs = argument_docs(class_doc(file, name))
    rows = [(f"`{key}`", prose(text)) for key, text in docs.items() if key not in without]
    return table(("key", "meaning"), rows)
