"""The kinds of component, and what a parent hands to each.

A kind is one word. It is the key in a recipe, the file in ``loopkit/components/``, the argument of ``loopkit list``,
the entry-point group ``loopkit.KIND`` and the page in the docs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of component.

    Args:
        name: The word used everywhere.
        contract: Name of the contract class in ``loopkit/components/NAME.py``.
        summary: What a component of this kind decides, in half a sentence.
        wiring: Names of the positional arguments a parent passes; a constructor lists the subset it wants.
    """

    name: str
    contract: str
    summary: str
    wiring: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Entry-point group in which packages offer components of this kind."""
        return f"loopkit.{self.name}"


_IN_BLOCKS = ("width", "position", "layer", "max_loops", "vocabulary")
_DEPTH = ("layer", "max_loops", "num_layers")

_ALL = (
    Kind("block", "Block", "one layer of prelude, core or coda", (*_IN_BLOCKS, "num_layers")),
    Kind("attention", "Attention", "mixes information between tokens", _IN_BLOCKS),
    Kind("mlp", "Mlp", "the channel mixer of a block", ("width", "layer", "max_loops")),
    Kind("norm", "Norm", "how a vector is normalised", ("width",)),
    Kind("placement", "Placement", "where the norm sits around a sublayer", ("norm", *_DEPTH)),
    Kind("position", "Position", "position encoding", ("width", "max_length")),
    Kind("core", "Core", "the layers that every loop applies", ("width", "block", "max_loops")),
    Kind("start", "Start", "the state before the first loop", ("width", "streams")),
    Kind("injection", "Injection", "how the input re-enters each loop", ("width", "max_loops", "streams")),
    Kind("carry", "Carry", "what passes from one loop to the next", ("width", "max_loops")),
    Kind("readout", "Readout", "maps the state to the input of the head", ("width", "max_loops")),
    Kind("gate", "Gate", "the learned exit gate", ("width",)),
    Kind("init", "Init", "weight initialization"),
    Kind("schedule", "Schedule", "how many loops a training step runs"),
    Kind("supervision", "Supervision", "which loops are supervised, and how"),
    Kind("regularizer", "Regularizer", "extra losses over the trajectory"),
    Kind("exit", "Exit", "when inference stops looping"),
    Kind("source", "Source", "where the text comes from"),
    Kind("tokenizer", "Tokenizer", "how text becomes numbers"),
    Kind("optimizer", "OptimizerRule", "how gradients become updates"),
    Kind("lr", "LearningRate", "the learning rate at each step"),
    Kind("task", "Task", "an evaluation task, scored at every depth"),
    Kind("probe", "Probe", "a measurement at every depth"),
    Kind("tracker", "Tracker", "a service that receives metrics"),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
BY_CONTRACT: dict[str, Kind] = {kind.contract: kind for kind in _ALL}

WIRING: dict[str, tuple[str, str]] = {
    "width": ("int", "Channels of the stream; of a norm, of what it normalises."),
    "layer": ("int", "Number of the layer in the whole model, from 0; a layer of the core counts once."),
    "max_loops": (
        "int",
        "Maximum number of loops of the recipe's schedule; 0 in prelude and coda, which run once.",
    ),
    "num_layers": ("int", "Blocks that one loop of the core applies; 0 in prelude and coda."),
    "streams": ("int", "Further streams S of the core's state, which is then `[B, T, S, D]`; 0: `[B, T, D]`."),
    "vocabulary": ("int | None", "Number of tokens; `None` if the model around the component does not state it."),
    "max_length": ("int", "Maximum number of tokens of a sequence in training, from `data.length`."),
    "position": ("Position", "The position component that the whole model shares."),
    "norm": ("Callable[[], Norm]", "Makes a norm of the stream's width."),
    "block": ("Callable[[], Block]", "Makes the next block of the model."),
}
"""Type and meaning of every positional argument that a parent passes."""
