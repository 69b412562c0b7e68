"""The parts of a model, each built from its spec. A fault while building says which part it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopkit.components.block import Block
from loopkit.components.position import Position
from loopkit.model.stage import Coda, Prelude
from loopkit.recipe.format import Stage
from loopkit.registry import Spec


class Parts:
    """Builds parts and numbers the blocks: a block's ``layer`` is its number in the whole model, which keys its cache.

    Args:
        width: Channels of the stream.
        max_length: Longest sequence.
        max_loops: Most loops in training.
        vocabulary: Number of tokens.
    """

    def __init__(self, *, width: int, max_length: int, max_loops: int, vocabulary: int) -> None:
        self.width = width
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.max_loops = max_loops
        self.layers = 0

    def build(self, path: str, spec: Spec, **wiring: Any) -> Any:
        """Build one part.

        Args:
            path: Where it stands in the recipe, for the error message.
            spec: What to build.
            wiring: What its kind is handed.

        Raises:
            Exception: Whatever its constructor raises, with a note that names the part.
        """
        try:
            return spec.build(**wiring)
        except Exception as error:
            error.add_note(f"while building {path}: {spec.kind} '{spec.name}'")
            raise

    def blocks(self, path: str, spec: Spec, position: Position, *, looped: bool = True) -> Callable[[], Block]:
        """A maker of the model's next block.

        Args:
            path: Where it stands in the recipe, for the error message.
            spec: What to build.
            position: How tokens know their order.
            looped: Whether the loop applies it. Where not, it is told ``max_loops`` 0, so that a block with parameters
                for each loop makes none that nothing would use.
        """
        max_loops = self.max_loops if looped else 0

        def next_block() -> Block:
            layer, self.layers = self.layers, self.layers + 1
            wiring = {"width": self.width, "layer": layer, "max_loops": max_loops, "vocabulary": self.vocabulary}
            block: Block = self.build(path, spec, position=position, **wiring)
            return block

        return next_block

    def prelude(self, stage: Stage, block: Spec, position: Position) -> Prelude:
        """The stage before the loop."""
        return Prelude(*self._stage("model.prelude", stage, block, position))

    def coda(self, stage: Stage, block: Spec, position: Position) -> Coda:
        """The stage between the last state and the readout."""
        return Coda(*self._stage("model.coda", stage, block, position))

    def _stage(self, path: str, stage: Stage, block: Spec, position: Position) -> tuple[list[Block], Any, Any]:
        make = self.blocks(f"{path}.block", stage.block or block, position, looped=False)
        norm = None if stage.norm is None else self.build(f"{path}.norm", stage.norm, width=self.width)
        project = None if stage.project is None else (self.width, stage.project)
        return [make() for _ in range(stage.layers)], norm, project
