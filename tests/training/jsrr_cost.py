"""Measure the cost of JSRR: a training step of the addition model with it against the same step without.

    python -m tests.training.jsrr_cost --rounds 11

Width 512, nine loops, 64 problems, fp32: forward, backward and update, without the regularizer and with each of its
products, in turn. Prints medians of processor time and of the clock, medians of the ratios to the plain step beside
them, and by how much a process of its own grows over three steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from loopkit.components.regularizer.jacobian import JSRR
from loopkit.components.supervision import Terminal
from loopkit.data import prepare
from loopkit.loop import Loops
from loopkit.model import build_model
from loopkit.objective import Objective
from loopkit.recipe import load_recipe

LOOPS, BATCH = 9, 64
FORMS = {"plain": None, "vjp": "vjp", "jvp": "jvp"}


def make_step(form: str) -> Callable[[int], None]:
    """One optimizer step of the full-size addition model."""
    recipe = load_recipe("addition_stars", overrides=["data.source.train=20000", "data.source.test=10"])
    prepared = prepare(recipe.data, splits=["train"])
    sizes = {"vocabulary": prepared.tokenizer.size, "max_length": recipe.data.length, "max_loops": LOOPS}
    model = build_model(recipe.model, **sizes, seed=0).train()
    product = FORMS[form]
    jsrr = {} if product is None else {"jsrr": JSRR(product=product, scope="sample")}  # type: ignore[arg-type]
    objective = Objective(Terminal(), jsrr)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    examples = prepared.splits["train"].examples(recipe.data.length)

    def step(number: int) -> None:
        batch = examples.batch(range(number * BATCH, (number + 1) * BATCH))
        objective(model.run(batch, Loops.fixed(LOOPS), noise_key=(0, number)), number).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def time_all(rounds: int) -> dict[str, dict[str, float]]:
    """Medians and ratios, the forms in turn."""
    steps = {form: make_step(form) for form in FORMS}
    seconds: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMS}
    for number in range(rounds + 1):
        for form, step in steps.items():
            cpu, clock = time.process_time(), time.perf_counter()
            step(number)
            if number:  # the first one warms up
                seconds[form].append((time.process_time() - cpu, time.perf_counter() - clock))
    costs = {}
    for form, times in seconds.items():
        costs[form] = {
            "cpu_s": statistics.median(cpu for cpu, _ in times),
            "clock_s": statistics.median(clock for _, clock in times),
            "cpu_ratio": statistics.median(a[0] / b[0] for a, b in zip(times, seconds["plain"], strict=True)),
            "clock_ratio": statistics.median(a[1] / b[1] for a, b in zip(times, seconds["plain"], strict=True)),
        }
    return costs


def memory(form: str) -> float:
    """The largest growth of the resident size during three steps, in MiB; for a process of its own."""
    step = make_step(form)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the high-water mark starts again from here
    before = resident("VmRSS")
    for number in range(3):
        step(number)
    return (resident("VmHWM") - before) / 1024


def resident(name: str) -> int:
    """A line of this process's status, in KiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--memory", choices=list(FORMS), help="only the memory of one form")
    chosen = parser.parse_args()
    if chosen.memory:
        print(memory(chosen.memory))
        return
    costs = time_all(chosen.rounds)
    for form in FORMS:
        words = [sys.executable, "-m", "tests.training.jsrr_cost", "--memory", form]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        costs[form]["peak_mib"] = round(float(done.stdout), 1)
    print(json.dumps(costs, indent=1))


if __name__ == "__main__":
    main()
