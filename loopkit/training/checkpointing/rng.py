"""The state of every random number generator of this process, as tensors."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def seed_all(seed: int, rank: int) -> None:
    """Seed every generator, differently on each rank."""
    mixed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
    torch.manual_seed(mixed)
    np.random.seed(mixed % 2**32)
    random.seed(mixed)


def capture(device: torch.device) -> dict[str, Tensor]:
    """Copy the state of torch's generators (CPU and this GPU), numpy's and Python's."""
    # loopkit draws keyed numbers (loop/noise.py); plugins may use the global generators
    state = {"torch_cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["torch_cuda"] = torch.cuda.get_rng_state(device)
    legacy = np.random.get_state(legacy=False)
    state["numpy"] = torch.from_numpy(legacy["state"]["key"].astype(np.int64))
    state["numpy_place"] = torch.tensor([legacy["state"]["pos"], legacy["has_gauss"]])
    state["numpy_gauss"] = torch.tensor(legacy["gauss"], dtype=torch.float64)
    _, words_of_state, gauss = random.getstate()
    state["python"] = torch.tensor(words_of_state)
    state["python_gauss"] = torch.tensor([] if gauss is None else [gauss], dtype=torch.float64)
    return state


def restore(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the result of ``capture``; a GPU state is ignored on a CPU, and a GPU without one keeps its own."""
    torch.set_rng_state(state["torch_cpu"])
    if device.type == "cuda" and "torch_cuda" in state:
        torch.cuda.set_rng_state(state["torch_cuda"], device)
    position, has_gauss = state["numpy_place"].tolist()
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": state["numpy"].numpy().astype(np.uint32), "pos": position},
            "has_gauss": has_gauss,
            "gauss": state["numpy_gauss"].item(),
        }
    )
    gauss = state["python_gauss"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), gauss[0] if gauss else None))
