"""What a registration may state about a component, and about components of which kinds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopkit.registry.kinds import KINDS

IN_LOOP = ("block", "attention", "mlp", "placement", "core", "injection", "carry", "readout")
"""Kinds whose components run in every loop or read its state, so that the number of loops may matter to them."""

MODULES = (*IN_LOOP, "norm", "position", "start", "gate")
"""Kinds whose components are parts of the model."""


@dataclass(frozen=True)
class Trait:
    """One fact that ``@register`` accepts.

    Args:
        values: What may be written after its name.
        meaning: What loopkit concludes from it.
        kinds: Kinds for which it has an effect; empty: all.
    """

    values: str
    meaning: str
    kinds: tuple[str, ...] = ()


TRAITS = {
    "paper": Trait("text", "Where the component comes from, such as `arXiv:2606.24898`."),
    "short": Trait("name of an option", "The option that a bare value in a recipe stands for."),
    "exactly_one": Trait("names of options", 'Options of which a recipe gives exactly one: `("path", "name")`.'),
    "packages": Trait(
        "map",
        "Top-level modules that it imports and that may be missing, each with what installs it: "
        '`{"wandb": "loopkit[track]"}`. No run starts without them.',
    ),
    "needs": Trait(
        "set",
        "Capabilities that something else in the recipe must provide: `gate`, `double_backward`, "
        "`whole_matrices` (no sharding of single matrices), or a name of your own.",
    ),
    "provides": Trait(
        "set",
        "Capabilities that it brings: `gate` (exit logits), `double_backward`, `cache` (an attention that reads and "
        "writes `step.cache`), or a name of your own.",
    ),
    "lacks": Trait("set", "Capabilities that it rules out: `double_backward`, `cache`."),
    "uses_total": Trait(
        "bool",
        "Its value depends on how many loops the pass has. `train.loops_per: sequence` is refused, and if it runs in "
        "the loop, evaluation makes one pass per depth.",
        (*IN_LOOP, "regularizer"),
    ),
    "uses_at": Trait(
        "bool",
        "It reads a loop differently when that loop is the last one (`k == at`). A depth then counts as trained only "
        "if training read it in the same way.",
        ("readout",),
    ),
    "stops": Trait(
        "bool",
        "It may end the loops of a sequence in training (`stop`). `validate` then requires `train.backprop: all`.",
        ("gate",),
    ),
    "causal": Trait(
        'True, False, "evaluation"',
        "Whether no token depends on a later one: always (the default), never, or in evaluation only.",
        MODULES,
    ),
    "noise": Trait(
        'bool, "training"',
        'It draws random numbers from `step.noise`: always, or `"training"` if only in training.',
        MODULES,
    ),
    "scale_invariant": Trait("bool", "Its output does not depend on the scale of the state.", ("readout",)),
    "layout": Trait(
        '"stream", "examples"',
        "Whether documents are joined and cut into windows, or padded one by one.",
        ("source",),
    ),
    "figures": Trait(
        "names",
        "The names of its figures; they must be unique within a recipe.",
        ("task", "probe"),
    ),
    "generates": Trait(
        "bool",
        "Its requests are of generated completions, for which the split under evaluation is not read.",
        ("task",),
    ),
    "chooses": Trait(
        "bool",
        "Its requests are of the likelihoods of options, for which the split under evaluation is not read.",
        ("task",),
    ),
    "lengths": Trait("names of options", "Options that hold a length in optimizer steps, or a share of the run."),
    "examples": Trait(
        "name of an option", "The option that holds how many training examples it gives at most.", ("source",)
    ),
    "before": Trait(
        "map",
        "What runs did that were made before an option was added, by option, if its default now does something else: "
        '`{"fit_joins": False}`. Their saved recipes are read with it.',
    ),
    "ignores_input": Trait("bool", "Its result does not depend on the model's input.", ("start", "injection")),
    "reads_tokens": Trait(
        "name of an option, None",
        "The option that, where it is set, lets a component read the tokens themselves; None if only its parts may. "
        "A component that wires `vocabulary` and does not state it is taken to read them.",
    ),
    "maximum": Trait("name of an option", "The option that holds its largest draw.", ("schedule",)),
}


def check_registration(kind: Any, name: Any, traits: Mapping[str, Any]) -> None:
    """Check the arguments of a registration, read from text or passed to ``register``.

    Raises:
        TypeError: If the kind, name or a trait is unknown, or packages have the wrong form.
    """
    if kind not in KINDS:
        raise TypeError(f"there is no kind {kind!r}; kinds: {', '.join(KINDS)}")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise TypeError(f"a component's name is lower case letters, digits and underscores, not {name!r}")
    if unknown := set(traits).difference(TRAITS):
        raise TypeError(
            f"unknown trait {', '.join(sorted(unknown))} of {kind} {name!r}; traits: {', '.join(sorted(TRAITS))}"
        )
    if traits.get("noise", False) not in (True, False, "training"):
        raise TypeError(f'noise of {kind} {name!r} is True, False or "training", not {traits["noise"]!r}')
    packages = traits.get("packages", {})
    if not isinstance(packages, dict) or not all(
        isinstance(module, str) and module.isidentifier() and isinstance(requirement, str)
        for module, requirement in packages.items()
    ):
        raise TypeError(
            f"packages of {kind} {name!r} is a map from top-level modules to what installs them, "
            f'such as {{"wandb": "loopkit[track]"}}, not {packages!r}'
        )
