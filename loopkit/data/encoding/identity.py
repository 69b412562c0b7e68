"""Whether a run that is resumed still reads the data that it was made with: judged by content, never by place."""

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
"""What runs recorded of a split before they recorded a digest of its tokens."""


class OtherData(UserError):
    """The data is not what the run was made with."""


def located(data: DataConfig) -> list[tuple[str, ...]]:
    """The keys of a recipe that say where data lies, which may change while the data stays the same."""
    parts = {"source": data.source, "tokenizer": data.tokenizer}
    return [("data", part, *key) for part, spec in parts.items() for key in locations(spec)]


def run_tokenizer(spec: Spec, folder: Path) -> Tokenizer:
    """The tokenizer of a run, as it was saved; one that the recipe does not fit must still be the same.

    Args:
        spec: The recipe's tokenizer.
        folder: Where the run saved its own.

    Raises:
        OtherData: If the recipe's tokenizer is another one now.
    """
    saved, now = load_tokenizer(folder, spec), spec.build()
    if not now.fit_on and now.fingerprint() != saved.fingerprint():
        raise OtherData(
            f"data.tokenizer: {spec.name} is not the tokenizer that the run was made with, which is saved in {folder}; "
            "put that one back, or give another experiment another name with --name"
        )
    return saved


def check_same_data(saved: Mapping[str, Mapping[str, Any]], prepared: Prepared) -> None:
    """Compare the encoded splits with what a run recorded of them.

    Args:
        saved: The run's ``Prepared.report``.
        prepared: The data now. A split that the run did not read is not compared.

    Raises:
        OtherData: If a split has other tokens, with what was and what is.
    """
    for name, now in prepared.report.items():
        before = saved.get(name, {})
        keys = ("sha256",) if "sha256" in before else tuple(key for key in COUNTS if key in before)
        if any(before[key] != now[key] for key in keys):
            counts = [key for key in COUNTS if key in before and before[key] != now[key]]
            changes = ", ".join(f"{before[key]:,} {key} in the run, {now[key]:,} now" for key in counts)
            raise OtherData(
                f"data.source: the {name} split is not the one that the run was made with "
                f"({changes or 'as many tokens, but not the same ones'}); put the data back as it was, or give "
                "another experiment another name with --name"
            )
