"""DeepSpeed imports without a compiler or launcher and prints nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
import sys
import torch
from torch import nn
from loopkit.training.distributed.process_group import join
from loopkit.training.distributed.deepspeed_import import deepspeed

process = join("cpu")
model = nn.Linear(4, 4)
config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
module = deepspeed(process.device, verbose="-v" in sys.argv)
engine = module.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0]
engine.backward(engine(torch.ones(1, 4)).sum())
engine.step()
print("stepped", process.rank, process.world)
"""


def run(root: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program with an empty PATH: no compiler, no ninja, no activated environment."""
    clean = {"PATH": str(folder), "HOME": str(folder), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments]
    return subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True, timeout=120)


def test_deepspeed_imports_quietly_without_compiler_or_launcher(root: Path, tmp_path: Path) -> None:
    done = run(root, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stepped 0 1\n", "")


def test_deepspeed_logs_are_shown_on_request(root: Path, tmp_path: Path) -> None:
    done = run(root, tmp_path, "-v")
    assert done.returncode == 0
    assert "DeepSpeed info: version" in done.stdout


def test_second_device_in_one_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from loopkit.training.distributed.deepspeed_import import deepspeed

    deepspeed(torch.device("cpu"))
    with pytest.raises(ValueError, match="start another process"):
        deepspeed(torch.device("cuda"))
    assert os.environ["DS_ACCELERATOR"] == "cpu"


def test_missing_gpu_is_refused() -> None:
    import torch

    from loopkit.training.distributed.process_group import choose_device

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r"set train\.device=cpu"):
        choose_device("cuda")
    assert choose_device("auto") == torch.device("cpu")
