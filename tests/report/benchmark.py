"""The JSON of an early-exit benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def _row(ppl: float, tokens_per_s: float) -> dict[str, Any]:
    seconds = 40960 / tokens_per_s
    return {
        "loss": math.log(ppl),
        "token_ppl": ppl,
        "tokens_per_s": tokens_per_s,
        "seconds": [seconds * 0.9, seconds, seconds * 1.08],
    }


def benchmark(
    ppls: Sequence[float] = (4.68, 4.55, 4.54, 4.55),
    exits: Mapping[str, tuple[float, float, float]] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Build a benchmark.

    Args:
        ppls: Perplexity at each depth.
        exits: Perplexity, average loops and speed-up of each exit.
        changes: Values to replace.
    """
    frontier = [{"depth": k, "trained": k == len(ppls)} | _row(ppl, 80_000 / k) for k, ppl in enumerate(ppls, start=1)]
    results = {}
    for name, (ppl, loops, speed_up) in ({"logit_margin": (4.60, 1.76, 2.09)} if exits is None else exits).items():
        results[name] = {
            "type": name,
            "level": "sequence",
            "threshold": 3.2145,
            "average_loops": loops,
            "speed_up": speed_up,
            "exits_by_loop": [40, 60, 30, 30],
            "core_calls": 77,
            "core_sequences": 370,
            "calibration": {"average_loops": loops + 0.03, "token_ppl": 4.6, "loss": 1.5, "tried": []},
        } | _row(ppl, frontier[-1]["tokens_per_s"] * speed_up)
    part = {"split": "validation", "data": "f00d", "sequences": 160, "tokens_scored": 40960}
    return {
        "benchmark": "early_exit",
        "run": "wikitext_44m_raw-mini",
        "checkpoint": "step-00000600",
        "date": "2026-11-29T13:00:00Z",
        "machine": {"system": "Linux", "processor": "A Processor @ 2.00GHz", "cores": 2, "threads": 2},
        "device": "cpu",
        "dtype": "fp32",
        "batch": 8,
        "window": 256,
        "read_as": "depth",
        "tokenizer": {"type": "regex", "size": 20000, "fingerprint": "abcd"},
        "loops": len(ppls),
        "tolerance": 0.01,
        "calibration": part | {"first_sequence": 0},
        "timed": part | {"first_sequence": 160, "tokens": 40960},
        "frontier": frontier,
        "fixed": frontier[-1],
        "exits": results,
        "notes": [],
    } | changes
