"""What a run keeps of the folder that its model came from, so that the folder can be given back.

``runs/NAME/imported/folder/`` holds every file but the weights, byte for byte; ``imported/layout.json`` the headers of
the weight files, which say names, types, shapes and order. A run that starts from this one inherits both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.errors import UserError, file_errors
from loopkit.interop.published import Published, sha256
from loopkit.interop.tensor_file import Header
from loopkit.runs import RunFolder, write_json

FORMAT = 1
FOLDER, LAYOUT = "folder", "layout.json"


@dataclass(frozen=True)
class WeightFile:
    """One weight file.

    Args:
        header: What it holds, and its text.
        sha256: Of the whole file.
    """

    header: Header
    sha256: str


@dataclass(frozen=True)
class Keepsake:
    """The folder that a run's model came from.

    Args:
        folder: Its files, weights left out.
        form: Name of its form.
        source: What it was called.
        shards: Its weight files.
        sha256: Of every other file.
        weights: SHA-256 of our weights as they were imported: equal where nothing was trained since.
    """

    folder: Path
    form: str
    source: str
    shards: Mapping[str, WeightFile]
    sha256: Mapping[str, str]
    weights: str

    @classmethod
    def of(cls, run: RunFolder) -> Keepsake | None:
        """What a run keeps; None where its model was not imported.

        Raises:
            ValueError: If it is damaged.
        """
        path = run.imported / LAYOUT
        if not path.is_file():
            return None
        try:
            with file_errors(path, "read"):
                record = json.loads(path.read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise UserError(f"format {record['format']}, this loopkit reads {FORMAT}")
            shards = {
                name: WeightFile(Header.parse(facts["header"], str(path)), facts["sha256"])
                for name, facts in record["shards"].items()
            }
            known = {key: record[key] for key in ("form", "source", "weights")}
            return cls(run.imported / FOLDER, shards=shards, sha256=dict(record["files"]), **known)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is damaged ({error}); import the model again") from error

    def check(self) -> None:
        """See that every kept file is as it was.

        Raises:
            ValueError: If one is missing or changed, naming it.
        """
        for name, digest in self.sha256.items():
            path = self.folder / name
            if not path.is_file() or sha256(path) != digest:
                what = "has been changed" if path.is_file() else "is missing"
                raise UserError(f"{path} {what}; import the model again, or put the file back as it was published")


def keep(published: Published, run: RunFolder) -> dict[str, str]:
    """Copy all files but the weights into a run.

    Returns:
        SHA-256 of each.
    """
    folder = run.imported / FOLDER
    folder.mkdir(parents=True)
    for name in published.kept:
        (folder / name).write_bytes((published.path / name).read_bytes())
    return {name: sha256(folder / name) for name in published.kept}


def write_layout(published: Published, run: RunFolder, *, form: str, files: Mapping[str, str], weights: str) -> dict:
    """Note how the weight files lie, and what everything hashed to.

    Args:
        published: The folder.
        run: Where it goes.
        form: Name of its form.
        files: Result of ``keep``.
        weights: SHA-256 of our weights.

    Returns:
        Name to SHA-256 of every file of the folder, weights included.
    """
    shards: dict[str, Any] = {
        name: {"header": file.header.text, "sha256": sha256(file.path)} for name, file in published.shards.items()
    }
    record = {
        "format": FORMAT,
        "form": form,
        "source": published.path.resolve().name,
        "files": dict(files),
        "shards": shards,
        "weights": weights,
    }
    write_json(run.imported / LAYOUT, record)
    return dict(files) | {name: facts["sha256"] for name, facts in shards.items()}
