"""Write the files of a run folder that describe the run: recipe, plugins, DeepSpeed configuration, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from loopkit.runs.atomic import write_json, write_text
from loopkit.runs.metrics import cut_metrics
from loopkit.runs.plugin_files import keep_plugin_files
from loopkit.runs.provenance import describe, origins, read_provenance, session
from loopkit.training.build import Training


def record_run(training: Training, command: Sequence[str] | None) -> None:
    """Create the run folder and describe the run; for a resumed run, add the new session."""
    recipe, folder, sizes = training.recipe, training.folder, training.plan.sizes
    if training.resume_point is not None:
        cut_metrics(folder.metrics, training.state.step)
        provenance = read_provenance(folder.provenance)
        provenance["sessions"].append(session(command, training.state.step))
    else:
        folder.create()
        if recipe.train.start_from is not None:
            folder.inherit(recipe.train.start_from)
        if recipe.path is not None:
            write_text(folder.recipe, recipe.path.read_text(encoding="utf-8"))
        provenance = describe(
            recipe=recipe.name,
            recipe_hash=recipe.hash,
            components=origins(recipe.specs.values()),
            torch=torch_facts(training.process.device),
            command=command,
        )
        provenance |= {
            "parameters": {"unique": training.parameters.unique, "looped": training.parameters.looped},
            "data": training.prepared.report,
        }
        if training.start is not None:
            provenance["start"] = training.start.to_json()
    provenance["sessions"][-1] |= {
        "num_steps": training.plan.num_steps,
        "micro_batch": sizes.micro,
        "accumulation": sizes.accumulation,
        "ranks": sizes.world,
        "ceiling": training.ceiling.to_json(),
    }
    keep_plugin_files(folder, recipe)
    write_text(folder.resolved, recipe.to_yaml())
    write_json(folder.deepspeed, training.deepspeed)
    write_json(folder.provenance, provenance)


def torch_facts(device: torch.device) -> dict[str, Any]:
    """Return torch's name of the device, and its flags that affect numbers."""
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    if device.type == "cuda":
        facts |= {
            "cuda": torch.version.cuda,
            "gpu_memory_bytes": torch.cuda.get_device_properties(device).total_memory,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    return facts
