"""The pages of outputs: the run folder and the JSON of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.site.reference.source_text import class_doc, properties
from loopkit.registry.source import argument_docs
from loopkit.report.pages.markdown import prose, table

RUN = """A run is one folder, `runs/NAME/`. NAME is the value of `--name`, by default the recipe or RECIPE-PROFILE,
with a short hash of the resolved recipe if `--set` was used. An existing folder is never overwritten; `--resume`
continues its run. Checkpoints are complete or absent; a manifest lists every file of a checkpoint with its checksum.
"""


def run_folder_page(folder: Path) -> str:
    """Write the page of the run folder from its class.

    Args:
        folder: Source file of ``RunFolder``.
    """
    paths = properties(folder, "RunFolder")
    rows = [(f"`{path}`", prose(doc)) for doc, path in paths.values() if path]
    return f"# The run folder\n\n{RUN}\n" + table(("file or folder", "content"), rows) + "\n"


def evaluation_page(result: Path, rows: Mapping[str, str], units: Mapping[str, str]) -> str:
    """Write the page of ``loopkit eval --json`` from the dataclasses of a result.

    Args:
        result: Source file of the dataclasses.
        rows: Meaning of the keys of a row of ``depths``.
        units: Definition and unit of metrics, from evaluations.
    """
    parts = [
        "# The JSON of an evaluation",
        "`loopkit eval --json` prints it, and `eval/` of the run contains it for every evaluation. **A metric that "
        "was not measured is absent, never zero.** `not_finite` of a row names its metrics that are not finite; in "
        "`tables` they are `null`, and `not_finite` of the result names them.",
        "## Model",
        _fields(result, "ModelSource"),
        "## Settings",
        _fields(result, "Conditions"),
        "## Result",
        _fields(result, "Result", without=("origin", "conditions", "trained")),
        "`trained_depths` holds the depths of training:",
        _fields(result, "TrainedDepths"),
        "## A row of `depths`",
        table(("key", "meaning"), [(f"`{key}`", prose(text)) for key, text in rows.items()]),
    ]
    if units:
        parts += [
            "## Metrics of probes",
            "Each is in the row of its depth or under `tables`; `units` of an evaluation defines them.",
            table(
                ("metric", "definition and unit"), [(f"`{key}`", prose(text)) for key, text in sorted(units.items())]
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _fields(file: Path, name: str, without: Iterable[str] = ()) -> str:
    docs = argument_docs(class_doc(file, name))
    rows = [(f"`{key}`", prose(text)) for key, text in docs.items() if key not in without]
    return table(("key", "meaning"), rows)
