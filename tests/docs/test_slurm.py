"""The batch file of scaling.md, run with stand-ins for Slurm's commands: two nodes that are two processes here."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopkit.runs import RunFolder, newest_checkpoint, read_metrics
from tests.e2e import documented
from tests.training.conftest import write_recipe

SECONDS = 300
SCONTROL = """
[ "$*" = "show hostnames $SLURM_JOB_NODELIST" ] || exit 9
for number in $(seq "$SLURM_NNODES"); do echo localhost; done
"""
SRUN = """
for node in $(seq 0 $((SLURM_NNODES - 1))); do
  SLURM_NODEID=$node "$@" & pids="$pids $!"
done
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
"""
NOTE = """
printf '%s\\n' "$@" > "node-$SLURM_NODEID"
"""
TORCHRUN = f"""
echo $$ > "agent-$SLURM_NODEID"
exec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"
"""


@dataclass
class Cluster:
    """A folder in which the batch file lies, with stand-ins in front of the path.

    Args:
        folder: Where jobs are submitted.
        script: The batch file.
        env: What Slurm sets for a job of two nodes.
    """

    folder: Path
    script: str
    env: dict[str, str]

    def stand_in(self, name: str, body: str) -> None:
        """Put a program on the path."""
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/bash\n{body}")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def submit(self, **replaced: str) -> subprocess.Popen[str]:
        """Start the job."""
        text = self.script.replace("RECIPE", "tiny.yaml")
        for old, new in replaced.items():
            text = text.replace(old, new)
        (self.folder / "job.sh").write_text(text)
        return subprocess.Popen(
            ["bash", "job.sh"], cwd=self.folder, env=self.env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[Cluster]:
    guide = documented.blocks(root / "docs" / "guides" / "scaling.md")
    (script,) = [block.text for block in guide if "#SBATCH" in block.text]
    asked = dict(line.removeprefix("#SBATCH --").split("=", 1) for line in script.splitlines() if "#SBATCH" in line)
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    env |= {
        "PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(paths),
        "LOOPKIT_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
        "SLURM_JOB_NAME": asked["job-name"],
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "1",
    }
    found = Cluster(tmp_path, script, env)
    found.stand_in("scontrol", SCONTROL)
    found.stand_in("srun", SRUN)
    write_recipe(tmp_path)
    yield found
    for file in tmp_path.glob("agent-*"):
        try:
            os.kill(int(file.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_every_node_starts_the_same_command_which_torchrun_and_loopkit_understand(cluster: Cluster) -> None:
    import click
    from torch.distributed.run import get_args_parser

    from loopkit.cli.train import command

    assert subprocess.run(["bash", "-n"], input=cluster.script, text=True).returncode == 0
    cluster.stand_in("torchrun", NOTE)
    for resumed in (False, True):
        if resumed:
            (cluster.folder / "runs" / "looped").mkdir(parents=True)
        assert cluster.submit().wait(60) == 0
        first, second = ((cluster.folder / f"node-{node}").read_text().splitlines() for node in (0, 1))
        assert first == second
        read = get_args_parser().parse_args(first)
        assert (read.nnodes, read.nproc_per_node, read.module, read.training_script) == ("2", "1", True, "loopkit")
        assert (read.rdzv_id, read.rdzv_backend, read.rdzv_endpoint) == ("17", "c10d", "localhost:29400")
        name, *words = read.training_script_args
        assert name == "train"
        options = command.make_context("train", words, resilient_parsing=False).params
        assert (options["recipe"], options["name"], options["resume"]) == ("tiny.yaml", "looped", resumed)
        assert options["nproc"] is None
        with pytest.raises(click.UsageError):  # that it was understood means something
            command.make_context("train", [*words, "--no-such-option"])


@pytest.mark.e2e
@pytest.mark.slow
def test_job_trains_on_both_nodes_and_resumes(cluster: Cluster) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = f":{free.getsockname()[1]}"
    cluster.stand_in("torchrun", TORCHRUN)
    recipe = cluster.folder / "tiny.yaml"
    recipe.write_text(recipe.read_text().replace("steps: 8", "steps: 100000"))
    run = RunFolder(cluster.folder / "runs" / "looped")
    job = cluster.submit(**{":29400": port})
    end = time.monotonic() + SECONDS
    while not run.metrics.is_file() or len(read_metrics(run.metrics)) < 4:
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)
    for node in (0, 1):  # what --signal does before the time is up
        os.kill(int((cluster.folder / f"agent-{node}").read_text()), signal.SIGTERM)
    _, said = job.communicate(timeout=SECONDS)
    assert "on each of 2 ranks" in said
    saved, damaged = newest_checkpoint(run.checkpoints)
    assert damaged == []
    assert saved.step == read_metrics(run.metrics)[-1]["step"], said
    last = saved.step + 2
    recipe.write_text(recipe.read_text().replace("steps: 100000", f"steps: {last}"))
    job = cluster.submit(**{":29400": port})
    _, said = job.communicate(timeout=SECONDS)
    assert job.returncode == 0, said
    assert f"resuming runs/looped after step {saved.step}" in said
    assert [line["step"] for line in read_metrics(run.metrics)] == list(range(1, last + 1))
