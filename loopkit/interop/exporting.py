"""A run becomes a checkpoint folder in Hugging Face form: the one that it came from, or a new one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loopkit.components.tokenizer import load_tokenizer
from loopkit.errors import UserError, file_errors
from loopkit.evaluation.trained_run import choose_checkpoint
from loopkit.interop.cast import cast
from loopkit.interop.importing import on_meta, plain_model, shapes_of
from loopkit.interop.layout import TYPES, WORDS
from loopkit.interop.published import sha256
from loopkit.interop.source_snapshot import Keepsake
from loopkit.interop.tables import table_bytes
from loopkit.interop.target import Target, new_folder, reexport
from loopkit.interop.tensor_file import TensorFile, write_tensors
from loopkit.interop.weight_map import Shape
from loopkit.runs import CheckpointProblem, RunFolder, write_json
from loopkit.runs.atomic import publish_folder, remove_folder
from loopkit.runs.checkpoint import TOKENIZER, WEIGHTS
from loopkit.runs.resolved import load_resolved


@dataclass(frozen=True)
class Exported:
    """A folder that was written.

    Args:
        path: The folder.
        form: Name of its form.
        step: Optimizer steps after which the run's checkpoint was written.
        unchanged: Whether it is, byte for byte, the folder that the run's model was imported from.
        types: Types of its tensors, as configurations say them.
        notes: What the user should know.
        warnings: What is wrong with newer checkpoints, if anything.
    """

    path: Path
    form: str
    step: int
    unchanged: bool
    types: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def export_run(
    run: str | Path | None,
    out: Path,
    *,
    step: int | None = None,
    dtype: str | None = None,
    plugins: Sequence[Path] = (),
    root: Path = Path("runs"),
) -> Exported:
    """Write the model of a run in Hugging Face form.

    Args:
        run: Its folder or name; None takes the newest.
        out: The folder to write; it appears whole or not at all.
        step: The checkpoint after so many optimizer steps; None takes the newest whole one.
        dtype: ``fp32``, ``bf16`` or ``fp16``; None keeps the types of the imported folder, and is fp32 otherwise.
        plugins: Files with further components, beside those that the run was made with.
        root: Where runs lie.

    Raises:
        UserError: If ``out`` is there.
        NoRun: If there is no such run.
        CheckpointProblem: If the checkpoint is missing or damaged.
        Unsayable: If no published form can say the model, naming the components at fault.
    """
    if out.exists():
        raise UserError(f"{out} already exists; give the exported model another folder with --out")
    folder = RunFolder.open(run, root)
    checkpoint, warnings = choose_checkpoint(folder, step)
    recipe = load_resolved(folder.resolved, checkpoint, plugins=plugins)
    tokenizer = load_tokenizer(checkpoint.path / TOKENIZER, recipe.data.tokenizer)
    model = on_meta(recipe, tokenizer)
    weights, shapes = TensorFile(checkpoint.path / WEIGHTS), shapes_of(model)
    if shapes != {name: entry.shape for name, entry in weights.header.entries.items()}:
        raise CheckpointProblem(f"{weights.path}: its tensors are not those of {folder.resolved}")
    plain, keepsake, kind = plain_model(recipe, model), Keepsake.of(folder), None if dtype is None else TYPES[dtype]
    if keepsake is None:
        target = new_folder(recipe, plain, tokenizer, kind or "F32")
    else:
        target = reexport(keepsake, recipe, plain, kind)
    if unfit := target.links.unfit(shapes):
        raise AssertionError(f"form {target.form.name}: " + "; ".join(unfit))
    hashes = _write(target, out, weights, shapes, folder.imported)
    unchanged = False
    if keepsake is not None and not target.values:
        unchanged = hashes == {name: shard.sha256 for name, shard in keepsake.shards.items()}
        assert unchanged or sha256(weights.path) != keepsake.weights, "weights that nobody trained have changed"
    types = tuple(WORDS[kind] for kind in target.types)
    notes = target.notes + (() if unchanged else target.caveats) + _rounding(target, weights)
    return Exported(out, target.form.name, checkpoint.step, unchanged, types, notes, tuple(warnings))


def _write(target: Target, out: Path, weights: TensorFile, shapes: dict[str, Shape], imported: Path) -> dict[str, str]:
    """Fill a folder and give it its name; the SHA-256 of every weight file."""
    pieces, tables = target.links.of_theirs(shapes), target.links.tables
    work = out.with_name(f".{out.name}.partial")
    remove_folder(work)
    try:
        with file_errors(out, "written"):
            work.mkdir(parents=True)
            for name, path in target.copied.items():
                shutil.copyfile(path, work / name)
        for name, value in target.values.items():
            write_json(work / name, value)
        types = {name: entry.dtype for header in target.headers.values() for name, entry in header.entries.items()}

        def content(name: str) -> Iterator[np.ndarray]:
            if name in tables:
                yield from table_bytes(tables[name], name, types[name], imported)
                return
            for piece in pieces[name]:
                raw = weights.read(piece.name, piece.start, piece.stop)
                yield from cast(raw, weights.header.entries[piece.name].dtype, types[name])

        with file_errors(out, "written"):
            hashes = {file: write_tensors(work / file, header, content) for file, header in target.headers.items()}
            publish_folder(work, out)
    except BaseException:
        remove_folder(work)
        raise
    return hashes


def _rounding(target: Target, weights: TensorFile) -> tuple[str, ...]:
    """What is said where numbers are written in another type than the run has them."""
    have = {WORDS[entry.dtype] for entry in weights.header.entries.values()}
    written = {WORDS[kind] for kind in target.types}
    if have == written:
        return ()
    return (f"the run's weights are {', '.join(sorted(have))}; they are written as {', '.join(sorted(written))}",)
