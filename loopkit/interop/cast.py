"""Numbers of one type as those of another, a stretch at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from loopkit.interop.tensor_file import ITEM

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
STRETCH = 2**22
"""Numbers that are converted at a time."""


def cast(raw: np.ndarray, source: str, target: str) -> Iterator[np.ndarray]:
    """Bytes of numbers of one type as bytes of another, rounded to the nearest; equal types pass as they are.

    Shapes: uint8 ``[bytes]`` each.
    """
    if source == target:
        yield raw
        return
    step = STRETCH * ITEM[source]
    for start in range(0, len(raw), step):
        numbers = torch.from_numpy(raw[start : start + step].copy()).view(TYPES[source])
        yield numbers.to(TYPES[target]).view(torch.uint8).numpy()
