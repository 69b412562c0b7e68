"""Runs of several ranks, as a test starts them: ``python -m tests.training.ranks JOB.json`` is one rank.

A job is a recipe file and, for each run, its name and overrides. Each rank trains all runs one after the other, and
writes the loops that it ran to ``NAME.loops.RANK.json``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from loopkit.training.distributed.launch import environments

SECONDS = 600


def train_on_ranks(recipe: Path, runs: Mapping[str, Sequence[str]], folder: Path, ranks: int = 2) -> None:
    """Train every run on several ranks, in one set of processes: starting them costs more than all of the steps."""
    job = folder / "job.json"
    job.write_text(json.dumps({"recipe": str(recipe), "runs": {name: list(words) for name, words in runs.items()}}))
    command = [sys.executable, "-m", "tests.training.ranks", str(job)]
    started = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for environment in environments(ranks)
    ]
    try:
        for process in started:
            _, output = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, output
    finally:
        for process in started:
            process.kill()


def main() -> None:
    import torch

    from loopkit.recipe import load_recipe
    from loopkit.training.distributed.process_group import join
    from loopkit.training.step.engine import Engine
    from tests.overriding import latest
    from tests.training.runs import fit

    torch.set_num_threads(1)
    job = Path(sys.argv[1])
    job_spec = json.loads(job.read_text())
    rank = join("cpu").rank
    loops: list[int] = []
    real = Engine.micro_step

    def noted(self, batch, ran, *arguments):  # type: ignore[no-untyped-def]
        loops.append(ran.total)
        return real(self, batch, ran, *arguments)

    Engine.micro_step = noted  # type: ignore[method-assign]
    for name, overrides in job_spec["runs"].items():
        loops.clear()
        fit(load_recipe(job_spec["recipe"], (), latest(*overrides)), job.parent / name)
        (job.parent / f"{name}.loops.{rank}.json").write_text(json.dumps(loops))


if __name__ == "__main__":
    main()
