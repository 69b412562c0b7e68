"""Write a run as a checkpoint folder in Hugging Face form: the one that it was imported from, or a new one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from torch import Tensor

from loopkit.components.tokenizer import Tokenizer, load_tokenizer
from loopkit.errors import UserError, file_errors
from loopkit.evaluation.trained_run import choose_checkpoint
from loopkit.interop.architectures import OWN, form_of
from loopkit.interop.export_plan import ExportPlan, plan_new, plan_update
from loopkit.interop.importing import meta_model, native_shapes, plain_model
from loopkit.interop.published import CONFIG, tensor_errors
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.interop.self_contained import plan_self_contained
from loopkit.interop.source_files import SourceFiles
from loopkit.recipe import Recipe
from loopkit.runs import Checkpoint, CheckpointProblem, RunFolder, read_provenance, write_json, write_text
from loopkit.runs.atomic import publish_folder, remove_folder
from loopkit.runs.checkpoint import EARLIER, TOKENIZER, Weights
from loopkit.runs.resolved import load_resolved

SHARD = "5GB"
"""Largest weight file; a larger model gets several and an index."""

OPTIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Values of ``--dtype``, as ``config.json`` writes them."""

DTYPES = {name: getattr(torch, name) for name in ("float64", *OPTIONS.values())}


@dataclass(frozen=True)
class Exported:
    """A folder that was written.

    Args:
        path: The folder.
        form: Name of its form.
        step: Optimizer steps after which the run's checkpoint was written.
        unchanged: Whether tensors and configuration are those of the imported folder.
        types: Types of its tensors, as ``config.json`` writes them.
        notes: What the user should know.
        warnings: Problems of newer checkpoints.
    """

    path: Path
    form: str
    step: int
    unchanged: bool
    types: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class TrainedWeights:
    """The weights of a checkpoint, with what they mean.

    Args:
        folder: The run.
        checkpoint: The checkpoint.
        recipe: The resolved recipe.
        tokenizer: The tokenizer of training.
        plain: The resolved ``model`` section as plain values, ``vocabulary`` filled in.
        weights: By native name, in the types of the file.
        warnings: Problems of newer checkpoints.
    """

    folder: RunFolder
    checkpoint: Checkpoint
    recipe: Recipe
    tokenizer: Tokenizer
    plain: dict[str, Any]
    weights: dict[str, Tensor]
    warnings: tuple[str, ...]

    @classmethod
    def load(
        cls, run: str | Path | None, *, step: int | None, weights: Weights, plugins: Sequence[Path], root: Path
    ) -> TrainedWeights:
        """Load a checkpoint; arguments and errors as for ``export_run``."""
        folder = RunFolder.open(run, root)
        checkpoint, warnings = choose_checkpoint(folder, step)
        path = checkpoint.weights_file(weights)
        recipe = load_resolved(folder.resolved, checkpoint, plugins=plugins)
        tokenizer = load_tokenizer(checkpoint.path / TOKENIZER, recipe.data.tokenizer)
        model = meta_model(recipe, tokenizer)
        with tensor_errors(path, "read"):
            tensors = load_file(path)
        if native_shapes(model) != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
            raise CheckpointProblem(f"{path}: its tensors are not those of {folder.resolved}; {EARLIER}")
        return cls(folder, checkpoint, recipe, tokenizer, plain_model(recipe, model), tensors, tuple(warnings))


def export_run(
    run: str | Path | None,
    out: Path,
    *,
    to: str = "hf",
    step: int | None = None,
    weights: Weights = "trained",
    dtype: str | None = None,
    plugins: Sequence[Path] = (),
    root: Path = Path("runs"),
) -> Exported:
    """Write the model of a run in Hugging Face form.

    The tensors and the configuration of an imported run that was not trained are those of the imported folder.

    Args:
        run: Its folder or name; None takes the newest.
        out: The folder to write; it appears complete or not at all.
        to: ``hf``, a folder that transformers loads: the form that the run was imported from if it can represent the
            model, else one with its modelling code. Or the name of a published form, without modelling code.
        step: Optimizer step of the checkpoint; None takes the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.
        dtype: ``fp32``, ``bf16`` or ``fp16``; None keeps the types of imported weights, and writes trained ones in the
            type that the imported ``config.json`` states, or in fp32.
        plugins: Files with components, in addition to those of the run.
        root: Folder of the runs.

    Raises:
        UserError: If ``out`` exists, or a kept file is missing.
        NoRun: If there is no such run.
        CheckpointProblem: If the checkpoint is missing or damaged, or has no average.
        NotRepresentable: If the form cannot represent the model; it names the components.
    """
    if out.exists():
        raise UserError(f"{out} already exists; give the exported model another folder with --out")
    trained = TrainedWeights.load(run, step=step, weights=weights, plugins=plugins, root=root)
    folder, checkpoint, native = trained.folder, trained.checkpoint, trained.weights
    source = SourceFiles.of(folder)
    plan = _plan(to, source, trained)
    if problems := plan.weight_map.problems({name: tuple(tensor.shape) for name, tensor in native.items()}):
        raise AssertionError(f"form {plan.form.name}: " + "; ".join(problems))

    imported = read_provenance(folder.provenance)["sessions"][-1]["status"] == "imported"
    chosen = OPTIONS.get(dtype or "", None if imported else _stated_dtype(plan))
    tensors = plan.weight_map.to_published(native)
    if chosen is not None:
        tensors = {
            name: tensor.to(DTYPES[chosen]) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
    buffers = _buffers(plan, {} if source is None else source.buffers)
    config = dict(plan.config)
    if dtype is not None:
        buffers = {name: tensor.to(DTYPES[OPTIONS[dtype]]) for name, tensor in buffers.items()}
        config |= {key: OPTIONS[dtype] for key in ("dtype", "torch_dtype") if key in config}
    _write(plan, config, tensors | buffers, out)
    stored, written = _type_names(native), _type_names(tensors)
    unchanged = imported and plan.changed_keys == () and stored == written
    notes = plan.notes if unchanged else plan.notes + plan.caveats
    if stored != written:
        notes += (f"the run's weights are {', '.join(stored)}; they are written as {', '.join(written)}",)
    types = _type_names(tensors | buffers)
    return Exported(out, plan.form.name, checkpoint.step, unchanged, types, notes, trained.warnings)


def _plan(to: str, source: SourceFiles | None, trained: TrainedWeights) -> ExportPlan:
    """Plan the folder; arguments and errors as for ``export_run``."""
    folder, step, recipe, plain = trained.folder, trained.checkpoint.step, trained.recipe, trained.plain
    imported = read_provenance(folder.provenance)["sessions"][-1]["status"] == "imported"
    form = None if source is None else form_of(source.config).name
    if to not in ("hf", form):
        return plan_new(recipe, plain, trained.tokenizer, to)
    notes: tuple[str, ...] = ()
    if source is not None and (form != OWN or imported):
        try:
            return plan_update(source, recipe, plain)
        except NotRepresentable as error:
            if to != "hf":
                raise
            reason = str(error).splitlines()[1].strip()
            notes = (f"form {form} cannot represent the trained model, so the folder has modelling code: {reason}",)
    plan = plan_self_contained(folder, step, recipe, plain, trained.tokenizer)
    return replace(plan, notes=plan.notes + notes)


def _stated_dtype(plan: ExportPlan) -> str:
    """The type that a configuration states for its weights; float32 if it states none that loopkit writes."""
    stated = str(plan.config.get("dtype") or plan.config.get("torch_dtype"))
    return stated if stated in DTYPES else "float32"


def _buffers(plan: ExportPlan, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without weights: the stored ones if they still follow from the configuration, else computed."""
    return {
        name: stored[name] if name in stored and buffer.matches(stored[name]) else buffer.compute()
        for name, buffer in plan.weight_map.buffers.items()
    }


def _write(plan: ExportPlan, config: dict, tensors: dict[str, Tensor], out: Path) -> None:
    """Fill a folder and give it its name."""
    work = out.with_name(f".{out.name}.partial")
    remove_folder(work)
    try:
        with tensor_errors(out, "written"):
            work.mkdir(parents=True)
            for name, path in plan.copied.items():
                shutil.copyfile(path, work / name)
        for name, value in {CONFIG: config, **plan.objects}.items():
            write_json(work / name, value)
        for name, text in plan.texts.items():
            write_text(work / name, text)
        with tensor_errors(out, "written"):
            save_torch_state_dict(tensors, work, max_shard_size=SHARD)
        with file_errors(out, "written"):
            publish_folder(work, out)
    except BaseException:
        remove_folder(work)
        raise


def _type_names(tensors: dict[str, Tensor]) -> tuple[str, ...]:
    types = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    return tuple(sorted(str(dtype).removeprefix("torch.") for dtype in types))
