"""A published ``config.json``, of which nothing is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loopkit.errors import UserError

NO_BEARING = frozenset(
    {
        *("architectures", "model_type", "auto_map", "_name_or_path", "_commit_hash", "transformers_version"),
        *("torch_dtype", "dtype", "initializer_range", "use_cache", "attn_implementation", "_attn_implementation"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "tokenizer_class"),
        *("return_dict", "output_attentions", "output_hidden_states", "problem_type", "id2label", "label2id"),
        *("finetuning_task", "task_specific_params", "prefix", "max_length", "min_length", "do_sample"),
        *("temperature", "top_k", "top_p", "num_beams", "repetition_penalty"),
    }
)
"""Keys of any model that change no number of its forward pass."""


class ConfigError(UserError):
    """A configuration that loopkit cannot honour; names every key at fault."""


class Config:
    """Reads the keys of a configuration and remembers which ones; whatever nobody read is an error in the end.

    Args:
        values: The configuration.
        ignore: Keys that the user takes upon themselves.
    """

    def __init__(self, values: Mapping[str, Any], ignore: Iterable[str] = ()) -> None:
        self._values = values
        self._seen = set(NO_BEARING) | set(ignore)
        self._ignored = frozenset(ignore)
        self._problems: list[str] = []

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of 1 or more; ``default`` where the key is absent or null."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._wrong(key, value, "a whole number of 1 or more")
            return 1
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number of 0 or more; ``default`` where the key is absent or null."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            self._wrong(key, value, "a number of 0 or more")
            return 1.0
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; ``default`` where the key is absent or null."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
            return default
        return value

    def only(self, key: str, *accepted: Any, why: str) -> None:
        """Refuse any other value than these, or none at all.

        Args:
            key: The key.
            accepted: Values with which the model is the one that loopkit has.
            why: What another value would mean.
        """
        value = self._take(key, None)
        if value is not None and value not in accepted and key not in self._ignored:
            self._problems.append(f"{key} is {value!r}: {why}")

    def get(self, key: str) -> Any:
        """A value as it is, or None; it counts as read."""
        return self._take(key, None)

    def pass_over(self, *keys: str) -> None:
        """Keys of this architecture that change no number of its forward pass."""
        self._seen.update(keys)

    def refuse(self, problem: str) -> None:
        """Note something that loopkit cannot honour."""
        self._problems.append(problem)

    def finish(self) -> None:
        """See that every key has been honoured.

        Raises:
            ConfigError: With every problem found.
        """
        for key, value in self._values.items():
            if key not in self._seen and value not in (None, False, [], {}):
                self._problems.append(
                    f"{key} is {value!r}: loopkit does not know what it does; --ignore {key} if it changes no number"
                )
        if self._problems:
            raise ConfigError("config.json: this model cannot be said in a recipe\n  " + "\n  ".join(self._problems))

    def _take(self, key: str, default: Any) -> Any:
        self._seen.add(key)
        value = self._values.get(key)
        return default if value is None else value

    def _wrong(self, key: str, value: Any, wanted: str) -> None:
        shown = "is missing" if value is None else f"is {value!r}"
        self._problems.append(f"{key} {shown}: it must be {wanted}")
