"""Random recipes at tiny size, each validated, trained for two steps and evaluated from its run folder.

    python -m tests.e2e.generated_runs --count 300 --seed 0

The components and their options come from the catalog, so those that are added later take part. A recipe that
``validate`` accepts is refused before its first step, or it trains and is evaluated: what is refused or fails after
that is a fault.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.data import prepare
from loopkit.errors import UserError
from loopkit.recipe import load_recipe
from loopkit.recipe.read import yaml_text
from loopkit.registry.catalog import catalog
from loopkit.registry.schema import Option, Slot, SlotList
from loopkit.runs import RunFolder

CORPUS = Path(__file__).resolve().parent.parent / "fixtures" / "runs" / "corpus"
LEFT_OUT = {
    "source": {"math_sft", "wikitext", "python_docs"},  # from the hub, or large
    "tokenizer": {"huggingface", "numbers"},  # a file of its own; for numbers alone
    "task": {"math"},  # a dataset of the hub
}
SIZES: dict[str, list[Any]] = {
    "layers": [1, 2],
    "heads": [2, 4],
    "backprop": [1, 2],
    "kv_heads": [1, 2],
    "head_size": [2, 4],
    "value_gate": [2, 4],
    "hidden": [8, 24],
    "ratio": [1.0, 2.0],
    "loops": [1, 2, 3],
    "mean": [2, 3],
    "max": [3, 4],
    "mu": [0.5],
    "max_size": [None, 300],
    "rounds": [2, 5],
    "alpha": [0.3, 1.0],
    "digits": [1, 2],
    "train": [40],
    "validation": [10],
    "test": [10],
    "tokens": [32],
    "sequences": [2],
    "steps": [4],
    "burn_in": [1],
    "length": [None, 4],
    "start_step": [0, 1],
}
"""Values of options by their name, in place of those of their type: sizes that stay tiny."""
FIXED: dict[str, dict[str, Any]] = {
    "source/addition": {"train": 40, "validation": 10, "test": 10, "digits": 2},
    "probe/trajectory": {"loops": 3, "sequences": 2},
    "probe/update": {"loops": 3, "burn_in": 1, "sequences": 2},
    "probe/spectral": {"steps": 4, "sequences": 2},
    "probe/scale_sweep": {"sequences": 2},
    "probe/clamp": {"sequences": 2},
}
"""Options of components whose defaults are large."""
TYPES: tuple[tuple[str, list[Any]], ...] = (
    ("NonNegativeInt | Share", [0, 1, 0.25]),
    ("PositiveInt | Share", [1, 0.5]),
    ("bool", [False, True]),
    ("Fraction", [0.0, 0.1, 0.5]),
    ("Share", [0.0, 0.3, 1.0]),
    ("Lt(1)", [0.1, 0.5]),
    ("PositiveInt", [1, 2, 3]),
    ("NonNegativeInt", [0, 1, 2]),
    ("PositiveFloat", [0.1, 0.5, 1.0, 2.0]),
    ("NonNegativeFloat", [0.0, 0.1, 1.0]),
)
"""Values by what the annotation of an option says; an option of another type keeps its default."""


class Generator:
    """Draws recipes.

    Args:
        seed: The same seed gives the same recipes while the catalog stays the same.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.catalog = catalog(False)

    def recipes(self) -> Iterator[dict[str, Any]]:
        """Recipes without end."""
        while True:
            yield self.recipe()

    def recipe(self) -> dict[str, Any]:
        pick, maybe = self.random.choice, self.maybe
        source = self.component("source")
        adds = source["type"] == "addition"
        if not adds:
            source = {"type": "text", "path": str(CORPUS), "validation": 0.2, "unit": pick(["paragraph", "line"])}
        model: dict[str, Any] = {"width": pick([8, 16])}
        for kind in ("position", "block", "core", "start", "injection", "carry", "readout", "gate", "init"):
            model[kind] = self.component(kind)
        for stage in ("prelude", "coda"):
            model[stage] = {"layers": pick([0, 0, 1])}
        model["embedding"] = {"scale": pick([1.0, "sqrt_width"]), "dropout": pick([0.0, 0.1])}
        model["head"] = pick(["tied", "untied"])
        probes, regularizers = self.several("probe", 2), self.several("regularizer", 2)
        train = {
            "steps": 2,
            "batch": 4,
            "micro_batch": pick(["auto", 1, 2, 4]),
            "backprop": pick(["all", 1, 2]),
            "loops_per": pick(["step", "micro_step", "sequence"]),
            "clip": pick([None, 1.0]),
            "precision": pick(["fp32", "fp32", "bf16_autocast"]),
            "checkpointing": maybe(),
            "device": "cpu",
            "deepspeed": pick([{}, {}, {"zero_optimization": {"stage": pick([1, 2])}}]),
            **{kind: self.component(kind) for kind in ("schedule", "optimizer", "lr")},
        }
        supervision = self.component("supervision")
        if supervision["type"].startswith("exit"):
            model["gate"] = {"type": "linear"}
        return {
            "loopkit": 2,
            "description": "Drawn at random.",
            "seed": self.random.randrange(1000),
            "data": {
                "source": source,
                "tokenizer": "characters" if adds else self.component("tokenizer"),
                "length": 12 if adds else 16,
                **({} if adds else {"stride": pick([8, 16])}),
            },
            "model": model,
            "objective": {"supervision": supervision, "regularizers": regularizers},
            "train": train,
            "evaluate": {
                "every": None,
                "depths": "1-3",
                "max_tokens": 400,
                "batch": 4,
                "tasks": {"perplexity": {}, **({"addition": {}} if adds and maybe() else {})},
                "probes": probes,
            },
        }

    def several(self, kind: str, most: int) -> dict[str, Any]:
        """Up to so many components of a kind, by name."""
        drawn = (self.component(kind) for _ in range(self.random.randint(0, most)))
        return {component.pop("type"): component for component in drawn}

    def component(self, kind: str) -> dict[str, Any]:
        """A component of a kind, with some of its options."""
        names = sorted(set(self.catalog.names(kind)) - LEFT_OUT.get(kind, set()))
        name = self.random.choice(names)
        values = {"type": name, **FIXED.get(f"{kind}/{name}", {})}
        schema = self.catalog.get(kind, name)
        for option in schema.options.values():
            if option.name not in values and (self.required(option) or self.maybe()):
                values |= self.option(option)
        return values

    def required(self, option: Option) -> bool:
        """Whether a recipe must set an option, be it for what its default component requires."""
        if option.required or not isinstance(option.annotation, Slot) or option.default is None:
            return option.required
        schema = self.catalog.get(option.annotation.kind, option.default)
        return any(self.required(inner) for inner in schema.options.values())

    def option(self, option: Option) -> dict[str, Any]:
        """A value for an option, under its name; nothing if its type is not one of those that are drawn."""
        form = option.annotation
        if isinstance(form, Slot):
            return {option.name: self.component(form.kind)}
        if isinstance(form, SlotList):
            return {option.name: [self.component(form.kind) for _ in range(max(form.at_least, 1))]}
        text = getattr(form, "text", "")
        if literal := re.match(r"Literal\[(.*?)\]", text):
            return {option.name: self.random.choice(re.findall(r"'(\w+)'", literal[1]))}
        if re.match(r"tuple|list|dict", text):
            return {}
        if option.name in SIZES and "Share" not in text:
            return {option.name: self.random.choice(SIZES[option.name])}
        values = next((values for word, values in TYPES if word in text and "NonPositive" not in text), None)
        return {} if values is None else {option.name: self.random.choice(values)}

    def maybe(self) -> bool:
        return self.random.random() < 0.3


@dataclass(frozen=True)
class Outcome:
    """How a recipe ended.

    Args:
        state: ``ran``, ``not finite``, ``invalid``, ``refused at start`` (before the first step), ``refused late`` or
            ``failed``.
        why: The message, or the end of the traceback.
    """

    state: str
    why: str = ""

    @property
    def fault(self) -> bool:
        return self.state in ("refused late", "failed")


def outcome_of(recipe: dict[str, Any], folder: Path) -> Outcome:
    """Validate, train and evaluate a recipe in an empty folder."""
    from tests.training.runs import fit

    folder.mkdir(parents=True)
    file = folder / "drawn.yaml"
    file.write_text(yaml_text(recipe))
    try:
        loaded = load_recipe(file, installed=False)
    except UserError as error:
        return Outcome("invalid", str(error))
    try:
        fit(loaded, folder / "run")
        losses = evaluate_run(RunFolder(folder / "run"))
    except ArithmeticError as error:  # train.health stopped it
        return Outcome("not finite", str(error))
    except UserError as error:
        started = (folder / "run" / "metrics.jsonl").exists()
        return Outcome("refused late" if started else "refused at start", str(error))
    except Exception:
        return Outcome("failed", "".join(traceback.format_exc().splitlines(keepends=True)[-6:]))
    return Outcome("ran" if all(math.isfinite(loss) for loss in losses) else "not finite")


def evaluate_run(folder: RunFolder) -> list[float]:
    """The loss of a run at one to three loops, as ``loopkit eval`` measures it."""
    from loopkit.evaluation import EvaluationSettings, evaluate
    from loopkit.evaluation.trained_run import open_run

    opened = open_run(folder.path, device="cpu")
    recipe = opened.recipe
    cache = folder.path.parent / "cache"
    prepared = prepare(recipe.data, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer, cache=cache)
    result = evaluate(
        opened.model,
        prepared,
        EvaluationSettings.from_recipe(recipe, depths=(1, 2, 3)),
        tokenizer=opened.tokenizer,
        trained=opened.trained,
        origin=opened.origin,
    )
    return [row["loss"] for row in result.to_json()["depths"]]


def study(count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Run recipes; how many ended how, and each fault with its recipe."""
    states: Counter[str] = Counter()
    faults, not_finite = [], []
    reasons: Counter[str] = Counter()
    for number, recipe in zip(range(count), Generator(seed).recipes(), strict=False):
        outcome = outcome_of(recipe, folder / str(number))
        states[outcome.state] += 1
        if outcome.fault:
            faults.append({"number": number, "state": outcome.state, "why": outcome.why, "recipe": recipe})
            print(f"{number}: {outcome.state}: {outcome.why}", file=sys.stderr, flush=True)
        elif outcome.state == "not finite":
            not_finite.append({"number": number, "why": outcome.why, "recipe": recipe})
        elif outcome.state in ("invalid", "refused at start"):
            reasons[re.sub(r"^.*?drawn\.yaml:\d+: ", "", outcome.why.splitlines()[0])] += 1
        if number % 10 == 9:
            print(f"{number + 1}: {dict(states)}, {time.process_time():.0f} s", file=sys.stderr, flush=True)
    return {"states": dict(states), "faults": faults, "not_finite": not_finite, "invalid": dict(reasons)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = study(options.count, options.seed, Path(folder))
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["faults"]))


if __name__ == "__main__":
    main()
