"""The parts of a model, each built from its spec. An error while building names the part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.components.position import Position
from loopkit.errors import UserError
from loopkit.model.stage import Coda, Prelude
from loopkit.recipe.format import StageConfig
from loopkit.registry import Spec


class Parts:
    """Builds parts and numbers the blocks: a block's ``layer`` is its number in the whole model, which keys its cache.

    Args:
        width: Channels of the stream.
        max_length: Longest sequence.
        max_loops: Most loops in training.
        vocabulary: Number of tokens.

    Attributes:
        layers: Blocks built so far.
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
            path: Its key in the recipe, for the error message.
            spec: The component to build.
            wiring: Positional arguments of its kind.

        Raises:
            Exception: Any exception of its constructor, with a note that names the part.
        """
        try:
            return spec.build(**wiring)
        except Exception as error:
            error.add_note(f"while building {path}: {spec.kind} '{spec.name}'")
            raise

    def core(self, spec: Spec, block: Spec, position: Position) -> Core:
        """Build the core; its blocks receive the number of blocks as ``num_layers``."""
        first = self.layers
        guess = spec.options.get(spec.schema.short or "")  # by convention the number of layers
        num_layers = guess if isinstance(guess, int) else 1
        while True:
            make = self.blocks("model.block", block, position, num_layers=num_layers)
            core: Core = self.build("model.core", spec, block=make, width=self.width, max_loops=self.max_loops)
            built = self.layers - first
            if built == num_layers:
                return core
            num_layers, self.layers = built, first

    def check_streams(self, core: Core, chosen: Mapping[str, Spec]) -> None:
        """Reject parts that do not support the streams of a core's state.

        Args:
            core: The core.
            chosen: Other parts of the loop, by kind.

        Raises:
            UserError: If one of them declares ``lacks={"streams"}``.
        """
        for kind, spec in chosen.items():
            if core.streams and "streams" in spec.traits.get("lacks", ()):
                raise UserError(
                    f"model.{kind}: {kind} '{spec.name}' allows no streams, and the core's state has {core.streams}; "
                    f"choose another {kind}"
                )

    def blocks(self, path: str, spec: Spec, position: Position, *, num_layers: int = 0) -> Callable[[], Block]:
        """Return a function that builds the model's next block.

        Args:
            path: Its key in the recipe, for the error message.
            spec: The block to build.
            position: The position encoding, shared by all blocks.
            num_layers: Number of blocks in the core; 0 in prelude and coda, where ``max_loops`` is 0 too, so that a
                block with parameters for each loop creates no unused ones.
        """
        depth = {"max_loops": self.max_loops if num_layers else 0, "num_layers": num_layers}

        def next_block() -> Block:
            layer, self.layers = self.layers, self.layers + 1
            wiring = {"width": self.width, "layer": layer, "vocabulary": self.vocabulary, **depth}
            block: Block = self.build(path, spec, position=position, **wiring)
            return block

        return next_block

    def prelude(self, stage: StageConfig, block: Spec, position: Position) -> Prelude:
        """Return the stage before the loop."""
        return Prelude(*self._stage("model.prelude", stage, block, position))

    def coda(self, stage: StageConfig, block: Spec, position: Position) -> Coda:
        """Return the stage between the last state and the readout."""
        return Coda(*self._stage("model.coda", stage, block, position))

    def _stage(self, path: str, stage: StageConfig, block: Spec, position: Position) -> tuple[list[Block], Any, Any]:
        make = self.blocks(f"{path}.block", stage.block or block, position)
        norm = None if stage.norm is None else self.build(f"{path}.norm", stage.norm, width=self.width)
        project = None if stage.project is None else (self.width, stage.project)
        return [make() for _ in range(stage.layers)], norm, project
