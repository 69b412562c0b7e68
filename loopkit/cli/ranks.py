"""``--nproc``: one command becomes the launcher of several ranks."""

from __future__ import annotations

import os
import sys

import click

from loopkit.errors import UserError

nproc_option = click.option(
    "--nproc", type=click.IntRange(min=1), help="Ranks to start on this machine; one if not given."
)


def start_ranks(nproc: int | None, remedy: str | None = None) -> None:
    """Become the launcher of so many ranks, unless a launcher has already started this one.

    Args:
        nproc: How many; None leaves it at this process.
        remedy: What to do after a rank was killed, where it is not to resume training.
    """
    from loopkit.training.distributed.launch import LAUNCHED, follow_launcher, launch, under_launcher

    if LAUNCHED in os.environ:
        follow_launcher()
        return
    if nproc is None:
        return
    if under_launcher():
        raise UserError("--nproc starts ranks, but a launcher (torchrun, deepspeed, srun) has already; leave it out")
    if nproc > 1:
        sys.exit(launch(sys.argv[1:], nproc) if remedy is None else launch(sys.argv[1:], nproc, remedy=remedy))
