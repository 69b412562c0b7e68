"""Compare a training step of loopkit with a plain PyTorch loop of the same model, in turn.

    python -m benchmarks.step --rounds 5
    python -m benchmarks.step --dropout 0.1 --profile

Prints JSON: medians of the seconds of a step, tokens per second, peak memory over idle (on a GPU, of all), and the
share of the time that the model's own matrix products take alone. One thread per idle core: set OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import torch

from benchmarks.matmul_ceiling import ceiling_seconds, square_rate, step_flops
from benchmarks.plain_loop import Shape
from loopkit.runs.provenance import machine, versions


class Contender:
    """A process that runs steps on request.

    Args:
        name: ``plain`` or ``loopkit``.
        shape: Sizes.
        options: Further options of its command line.
    """

    def __init__(self, name: str, shape: Shape, options: list[str]) -> None:
        command = [sys.executable, "-m", "benchmarks.contender", name, json.dumps(asdict(shape)), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def step(self, number: int) -> float:
        """Run a step and return its seconds."""
        assert self._process.stdin is not None
        print(number, file=self._process.stdin, flush=True)
        return float(self._answer())

    def finish(self) -> dict[str, Any]:
        """End the process and return its memory and profile."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return dict(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a contender failed; its error is above")
        return json.loads(line)


def compare(shape: Shape, rounds: int, *, device: str, options: list[str]) -> dict[str, Any]:
    """Run both contenders in turn.

    Args:
        shape: Sizes.
        rounds: Steps of each that count; one more warms up.
        device: ``cpu`` or ``cuda``.
        options: Options of the contenders' command line.

    Returns:
        JSON; ``speed`` and ``memory`` are loopkit's over the plain loop's.
    """
    names = ("plain", "loopkit")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as stack:
        contenders = {
            name: stack.enter_context(Contender(name, shape, [*options, "--device", device])) for name in names
        }
        for number in range(rounds + 1):
            for name in names:
                elapsed = contenders[name].step(number)
                if number:
                    seconds[name].append(elapsed)
        results = {name: contenders[name].finish() for name in names}
    dtype = torch.bfloat16 if "--bf16" in options else torch.float32
    ceiling = ceiling_seconds(shape, device=device, dtype=dtype)
    for name in names:
        median = statistics.median(seconds[name])
        results[name] |= {
            "step_s": {"median": median, "min": min(seconds[name]), "max": max(seconds[name])},
            "tokens_per_s": shape.tokens / median,
            "share_of_ceiling": ceiling / median,
        }
    plain, loopkit = (results[name] for name in names)
    return {
        "shape": asdict(shape),
        "options": options,
        **results,
        "speed": loopkit["tokens_per_s"] / plain["tokens_per_s"],
        "memory": loopkit["peak_bytes"] / plain["peak_bytes"],
        "ceiling": {
            "step_s": ceiling,
            "flops_per_s": step_flops(shape) / ceiling,
            "square_flops_per_s": square_rate(device=device, dtype=dtype),
        },
        "machine": machine(),
        "packages": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main() -> None:
    """Read the options, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="steps of each that count")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    for name, default in asdict(Shape()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    for flag in ("bf16", "compile", "checkpointing", "profile"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = vars(parser.parse_args())
    flags = [f"--{flag}" for flag in ("bf16", "compile", "checkpointing", "profile") if options[flag]]
    shape = replace(Shape(), **{name: options[name] for name in asdict(Shape())})
    result = compare(shape, options["rounds"], device=options["device"], options=flags)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
