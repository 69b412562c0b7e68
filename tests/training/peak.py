"""Compare the memory estimate of ``loopkit plan`` with training: the 44M recipe on a CPU.

    python -m tests.training.peak                 all settings, each in a process of its own
    python -m tests.training.peak 4 2 0           batch 4, 2 loops, no checkpointing: one JSON line

Measured is the peak of resident memory over two optimizer steps, over what the process held after its imports: the
first step has no optimizer state yet when activations are at their most. One thread; some minutes in all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SETTINGS = ((4, 2, 0), (4, 4, 0), (8, 2, 0), (8, 4, 0), (8, 4, 1))
"""Sequences, loops, and whether the core is recomputed."""
RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "wikitext_44m_raw.yaml"
VOCABULARY = 20_000


def resident(field: str) -> int:
    """Bytes of this process by a name of ``/proc/self/status``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(batch: int, loops: int, checkpointing: bool, *overrides: str) -> dict[str, float]:
    """Measure two optimizer steps of the engine, and estimate the same recipe."""
    import torch

    from loopkit.cost.memory import estimate
    from loopkit.data.batch_sizes import BatchSizes
    from loopkit.loop import Batch, Loops
    from loopkit.model import build_model
    from loopkit.model.parameter_groups import parameter_groups
    from loopkit.objective import build_objective
    from loopkit.recipe import load_recipe
    from loopkit.training.distributed.deepspeed_import import deepspeed
    from loopkit.training.distributed.process_group import join
    from loopkit.training.step.deepspeed_config import deepspeed_config
    from loopkit.training.step.engine import Engine
    from loopkit.training.step.module import TrainingModule

    torch.set_num_threads(1)
    sizes = (f"train.batch={batch}", f"train.micro_batch={batch}", f"train.schedule={{type: fixed, loops: {loops}}}")
    recipe = load_recipe(RECIPE, (), [*sizes, f"train.checkpointing={json.dumps(checkpointing)}", *overrides])
    process = join("cpu")
    deepspeed(process.device)
    length = recipe.data.length
    # the first products and the first backward load kernels and start threads; that belongs to the imports
    (
        torch.ones(8, 8, dtype=torch.bfloat16, requires_grad=True) @ torch.ones(8, 8, dtype=torch.bfloat16)
    ).sum().backward()
    before = resident("VmRSS")
    model = build_model(recipe.model, vocabulary=VOCABULARY, max_length=length, max_loops=loops, seed=0).train()
    model.checkpointing = recipe.train.checkpointing
    objective = build_objective(recipe.objective)
    module = TrainingModule(model, objective, seed=0, precision=recipe.train.precision).train()
    optimizer = recipe.train.optimizer.build().build(parameter_groups(module))
    engine = Engine(module, optimizer, deepspeed_config(BatchSizes.of(batch, batch, 1), 1.0, {}), process)
    generator = torch.Generator().manual_seed(0)
    result: dict[str, float] = {"batch": batch, "loops": loops, "checkpointing": checkpointing}
    for step in (1, 2):
        tokens = torch.randint(VOCABULARY, (batch, length + 1), generator=generator)
        engine.micro_step(
            Batch.of(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), Loops.fixed(loops), step, 1.0
        )
        engine.update(1e-4)
        result[f"measured_after_{step}"] = resident("VmHWM") - before
    meta = build_model(recipe.model, vocabulary=VOCABULARY, max_length=length, max_loops=loops, device="meta")
    memory = estimate(meta, objective.supervision, recipe, recipe.train.schedule.build())
    result["estimate"] = memory.total(batch)
    result["ratio"] = memory.total(batch) / result["measured_after_2"]
    return result


def main() -> None:
    if len(sys.argv) > 3:
        batch, loops, checkpointing = (int(word) for word in sys.argv[1:4])
        print(json.dumps(measure(batch, loops, bool(checkpointing), *sys.argv[4:])), flush=True)
        return
    for setting in SETTINGS:
        subprocess.run([sys.executable, "-m", "tests.training.peak", *map(str, setting)], check=True)


if __name__ == "__main__":
    main()
