"""Error message and exit code of a failing rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode
from loopkit.training.distributed.rank_errors import exit_code, format_rank_error, lost_contact, report_rank_errors
from loopkit.training.errors import Interrupted, NotFinite

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4242"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("bad"), 2),
        (ValueError("a contract"), 1),
        (FileNotFoundError("gone"), 1),
        (KeyError("key"), 1),
        (NotFinite(3, "the loss is nan", None), 3),
        (ZeroDivisionError("bug"), 1),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), 1),
        (RuntimeError(GLOO), ExitCode.LOST),
        (dist.DistNetworkError("the store went away"), ExitCode.LOST),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code
    assert lost_contact(error) is (code == ExitCode.LOST)


def test_error_names_rank_with_traceback_for_bugs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    error = UserError("data.length is too long")
    error.add_note("in RECIPE")
    assert format_rank_error(error).startswith("error: rank 5 on ")
    assert format_rank_error(error).endswith(": data.length is too long\n  in RECIPE")
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as bug:
        text = format_rank_error(bug)
    assert text.startswith("Traceback")
    assert text.splitlines()[-2].startswith("error: rank 5 on ")
    assert "please report it" in text.splitlines()[-1]


def test_one_process_keeps_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ZeroDivisionError), report_rank_errors():
        raise ZeroDivisionError
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Interrupted), report_rank_errors():  # all ranks leave together
        raise Interrupted(15, 3, Path("somewhere"))


CODE = """
import os, time
from loopkit.errors import UserError
from loopkit.training.distributed.rank_errors import report_rank_errors
from loopkit.training.distributed.process_group import join
with report_rank_errors():
    process = join("cpu")
    if os.environ["FAILING"] == "all" or os.environ["RANK"] == os.environ["FAILING"]:
        raise UserError("the data is not there")
    process.barrier()
"""


@pytest.mark.parametrize("failing", ["all", "1"])
def test_first_failing_rank_reports(failing: str) -> None:
    from loopkit.training.distributed.launch import LAUNCHED, environments

    processes = []
    for environment in environments(2):
        variables = {key: value for key, value in environment.items() if key != LAUNCHED} | {"FAILING": failing}
        processes.append(
            subprocess.Popen([sys.executable, "-c", CODE], env=variables, stderr=subprocess.PIPE, text=True)
        )
    messages = [process.communicate(timeout=120)[1] for process in processes]
    assert sum(message.count("error:") for message in messages) == 1, messages
    assert "the data is not there" in "".join(messages)
    codes = [process.returncode for process in processes]
    assert codes == ([2, 2] if failing == "all" else [ExitCode.LOST, 2])
    assert os.environ.get("RANK") is None
