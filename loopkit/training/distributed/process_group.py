"""Which of how many processes this is, on which device; one process needs no launcher, no port and no MPI."""

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
    """This process among those that train together.

    Args:
        rank: Its number, from 0; rank 0 speaks and writes.
        world: How many there are.
        local_rank: Its number on this machine.
        device: Where it computes.
    """

    rank: int
    world: int
    local_rank: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for the others."""
        if self.world > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; the same answer on all of them."""
        return self.sum([float(flag)])[0] > 0

    def sum(self, values: list[float]) -> list[float]:
        """Sums over ranks, in float64."""
        if self.world == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()


def choose_device(wanted: Literal["auto", "cpu", "cuda"], local_rank: int = 0) -> torch.device:
    """The device of ``train.device``.

    Raises:
        ValueError: If a GPU is asked for and torch sees none, or there are more ranks here than GPUs.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("train.device is cuda, but torch sees no GPU; set train.device=cpu, or ask loopkit doctor")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= (count := torch.cuda.device_count()):
        raise UserError(
            f"rank {local_rank} of this machine has no GPU: there are {count}; start {count} ranks, or fewer"
        )
    return torch.device("cuda", local_rank)


def join(wanted: Literal["auto", "cpu", "cuda"]) -> Process:
    """Join the processes that a launcher started, or be the only one.

    ``torchrun``, ``deepspeed`` and Slurm launchers say who is who in the environment (``RANK``, ``WORLD_SIZE``,
    ``LOCAL_RANK``, ``MASTER_ADDR``, ``MASTER_PORT``). The group stays until the program ends, so several runs in one
    program share it: DeepSpeed keeps references to it. A launcher of one rank is as none.

    Raises:
        UserError: If the environment describes ranks in part.
    """
    # DeepSpeed reads this variable now and then, launcher or not
    local_rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
    device = choose_device(wanted, local_rank)
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
