"""``--nproc``: a command starts itself on several ranks."""

from __future__ import annotations

import os
import sys

import click

from loopkit.errors import UserError

nproc_option = click.option(
    "--nproc", type=click.IntRange(min=1), help="Number of ranks on this machine.  [default: 1]"
)


def start_ranks(nproc: int | None, remedy: str | None = None) -> None:
    """Start ranks and exit with their code, unless a launcher has already started this process.

    Args:
        nproc: Number of ranks; None runs only this process.
        remedy: What to do after a rank was killed; None proposes to resume training.
    """
    from loopkit.training.distributed.launch import LAUNCHED, follow_launcher, launch, under_launcher

    if LAUNCHED in os.environ:
        follow_launcher()
        return
    if nproc is None:
        return
    if under_launcher():
        raise UserError(
            "--nproc starts ranks, but a launcher (torchrun, deepspeed, srun) has already started them; omit --nproc"
        )
    if nproc > 1:
        sys.exit(launch(sys.argv[1:], nproc) if remedy is None else launch(sys.argv[1:], nproc, remedy=remedy))
