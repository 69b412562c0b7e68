"""The device of each rank."""

from __future__ import annotations

import pytest
import torch

from loopkit.training.distributed.process_group import choose_device


def test_without_gpu_auto_is_cpu_and_cuda_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ValueError, match=r"train\.device is cuda, but torch finds no GPU"):
        choose_device("cuda")


def test_each_local_rank_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cpu", 1).type == "cpu"
    assert [choose_device("auto", rank).index for rank in (0, 1)] == [0, 1]
    with pytest.raises(ValueError, match="rank 2 of this machine has no GPU: the machine has 2; start at most 2 ranks"):
        choose_device("auto", 2)
