"""The rank, world size and device of this process; a single process needs neither launcher nor port."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from loopkit.errors import UserError
from loopkit.training.distributed.launch import under_launcher


@dataclass(frozen=True)
class Process:
    """This process as a rank of the process group.

    Args:
        rank: Its number, from 0; rank 0 prints and writes files.
        world: Number of ranks.
        local_rank: Its number on this machine.
        device: Its device.
    """

    rank: int
    world: int
    local_rank: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which prints and writes files."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; all ranks receive the same result."""
        return self.sum([float(flag)])[0] > 0

    def sum(self, values: list[float]) -> list[float]:
        """Sum values over all ranks, in float64."""
        if self.world == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()


def choose_device(name: Literal["auto", "cpu", "cuda"], local_rank: int = 0) -> torch.device:
    """Return the device of ``train.device``.

    Raises:
        UserError: If torch finds no GPU for ``cuda``, or this machine has more ranks than GPUs.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("train.device is cuda, but torch finds no GPU; set train.device=cpu, or run loopkit doctor")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= (count := torch.cuda.device_count()):
        raise UserError(
            f"rank {local_rank} of this machine has no GPU: the machine has {count}; start at most {count} ranks"
        )
    return torch.device("cuda", local_rank)


def join(device_name: Literal["auto", "cpu", "cuda"]) -> Process:
    """Join the process group of a launcher, or create one of a single rank.

    ``torchrun``, ``deepspeed`` and Slurm launchers set ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR`` and
    ``MASTER_PORT``. The group stays until the program ends and is shared by its runs, because DeepSpeed keeps
    references to it. A launcher of one rank is treated as none.

    Raises:
        UserError: If these variables are incomplete.
    """
    # DeepSpeed reads this variable even without a launcher
    local_rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
    device = choose_device(device_name, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        if under_launcher():
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        atexit.register(_leave)
    return Process(dist.get_rank(), dist.get_world_size(), local_rank, device)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
