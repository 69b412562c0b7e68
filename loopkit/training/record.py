"""The files of a run folder that say what the run is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from loopkit.cost.ceiling import Ceiling
from loopkit.model import count_parameters
from loopkit.runs.atomic import write_json, write_text
from loopkit.runs.metrics import cut_metrics
from loopkit.runs.plugin_files import keep_plugin_files
from loopkit.runs.provenance import describe, origins, read_provenance, session
from loopkit.training.setup import Setup


def record(setup: Setup, found: Ceiling, command: Sequence[str] | None) -> None:
    """Make the run folder and write down what the run is made of; of a resumed run, only what is new."""
    recipe, folder, start = setup.recipe, setup.folder, setup.start
    if start is not None:
        cut_metrics(folder.metrics, start.place.step)
        facts = read_provenance(folder.provenance)
        facts["sessions"].append(session(command, start.place.step))
    else:
        folder.create()
        if recipe.train.start_from is not None:
            folder.inherit(recipe.train.start_from)
        if recipe.path is not None:
            write_text(folder.recipe, recipe.path.read_text(encoding="utf-8"))
        facts = describe(
            recipe=recipe.name,
            recipe_hash=recipe.hash,
            components=origins(recipe.specs.values()),
            torch=torch_facts(setup.process.device),
            command=command,
        )
        parameters = count_parameters(setup.model)
        facts |= {
            "parameters": {"unique": parameters.unique, "looped": parameters.looped},
            "data": setup.prepared.report,
        }
    facts["sessions"][-1] |= {
        "num_steps": setup.num_steps,
        "micro_batch": setup.sizes.micro,
        "accumulation": setup.sizes.accumulation,
        "ranks": setup.sizes.world,
        "ceiling": found.to_json(),
    }
    keep_plugin_files(folder, recipe)
    write_text(folder.resolved, recipe.to_yaml())
    write_json(folder.deepspeed, setup.config)
    write_json(folder.provenance, facts)


def torch_facts(device: torch.device) -> dict[str, Any]:
    """What torch knows of the device, and its flags that bear on numbers."""
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
