"""Check that a resumed run reads the same data: by content, not by path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.components.tokenizer import Tokenizer, load_tokenizer
from loopkit.data.encoding.versions import locations
from loopkit.data.split import Prepared
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.recipe.format import DataConfig
    from loopkit.registry import Spec

COUNTS = ("tokens", "documents", "characters", "bytes")
"""What runs record of a split if they have no digest of its tokens."""


class OtherData(UserError):
    """The data differs from that of the run."""


def located(data: DataConfig) -> list[tuple[str, ...]]:
    """Return the keys of a recipe that are paths of data; they may change while the data stays the same."""
    parts = {"source": data.source, "tokenizer": data.tokenizer}
    return [("data", part, *key) for part, spec in parts.items() for key in locations(spec)]


def run_tokenizer(spec: Spec, folder: Path) -> Tokenizer:
    """Load the tokenizer of a run. The recipe's must be equal, unless its vocabulary is fitted.

    Args:
        spec: The recipe's tokenizer.
        folder: The folder that the run saved its tokenizer to.

    Raises:
        OtherData: If the recipe's tokenizer differs.
    """
    saved, current = load_tokenizer(folder, spec), spec.build()
    if not current.fit_on and current.fingerprint() != saved.fingerprint():
        raise OtherData(
            f"data.tokenizer: {spec.name} differs from the tokenizer of the run, which is saved in {folder}; "
            "restore that one, or start a new run with --name"
        )
    return saved


def check_same_data(saved: Mapping[str, Mapping[str, Any]], prepared: Prepared) -> None:
    """Compare the encoded splits with the run's record of them.

    Args:
        saved: The run's ``Prepared.report``.
        prepared: The current data. Splits that the run did not read are not compared.

    Raises:
        OtherData: If the tokens of a split differ.
    """
    for name, current in prepared.report.items():
        recorded = saved.get(name, {})
        counts = [key for key in COUNTS if key in recorded and recorded[key] != current[key]]
        differs = recorded["sha256"] != current["sha256"] if "sha256" in recorded else bool(counts)
        if differs:
            changes = ", ".join(f"{recorded[key]:,} {key} in the run, {current[key]:,} now" for key in counts)
            raise OtherData(
                f"data.source: the {name} split differs from that of the run "
                f"({changes or 'the same number of tokens, but not the same tokens'}); restore the data, or start a "
                "new run with --name"
            )
