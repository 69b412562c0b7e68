"""Configuration of a looped language model exported by loopkit."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from loopkit.interop.templates.slots import count_slots


class LoopkitConfig(PretrainedConfig):
    """A looped model: its components, and the number of loops that it runs by default.

    Args:
        recipe_model: The resolved ``model`` section of the recipe.
        num_loops: Loops of a forward pass; ``generate`` and ``forward`` accept another number.
        max_loops: Maximum number of loops in training.
        max_position_embeddings: Longest sequence in training, in tokens.
        vocab_size: Number of tokens.
    """

    model_type = "loopkit"
    keys_to_ignore_at_inference = ("past_key_values",)

    def __init__(
        self,
        recipe_model: dict[str, Any] | None = None,
        num_loops: int = 1,
        max_loops: int = 1,
        max_position_embeddings: int = 256,
        vocab_size: int = 1,
        **kwargs: Any,
    ) -> None:
        self.recipe_model: Any = recipe_model
        self.num_loops = num_loops
        self.max_loops = max_loops
        self.max_position_embeddings = max_position_embeddings
        self.vocab_size = vocab_size
        kwargs.pop("num_hidden_layers", None)
        if recipe_model is not None:
            attention = recipe_model["block"]["attention"]
            self.hidden_size = recipe_model["width"]
            self.num_attention_heads = attention["heads"]
            self.num_key_value_heads = attention["kv_heads"] or attention["heads"]
            self.head_dim = attention["head_size"] or self.hidden_size // self.num_attention_heads
            kwargs["tie_word_embeddings"] = recipe_model["head"]["tied"]
        super().__init__(**kwargs)

    @property
    def num_hidden_layers(self) -> int:
        """Pairs of loop and layer, each with keys and values of its own; follows ``num_loops``."""
        return 0 if self.recipe_model is None else count_slots(self.recipe_model, self.num_loops)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"num_hidden_layers": self.num_hidden_layers}
