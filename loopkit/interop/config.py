"""A published ``config.json`` in which every key must be read, ignored or rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loopkit.errors import UserError

IRRELEVANT_KEYS = frozenset(
    {
        *("architectures", "model_type", "auto_map", "_name_or_path", "_commit_hash", "transformers_version"),
        *("torch_dtype", "dtype", "initializer_range", "use_cache", "attn_implementation", "_attn_implementation"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "tokenizer_class"),
        *("return_dict", "output_attentions", "output_hidden_states", "problem_type", "id2label", "label2id"),
        *("finetuning_task", "task_specific_params", "prefix", "max_length", "min_length", "do_sample"),
        *("temperature", "top_k", "top_p", "num_beams", "repetition_penalty"),
    }
)
"""Keys of any model that do not change its forward pass."""


class ConfigError(UserError):
    """No recipe can represent a configuration; the message names every key."""


class Config:
    """Reads the keys of a configuration and collects problems; a key that was not read is one.

    Args:
        values: The configuration.
        ignore: Keys that the user declares irrelevant.
    """

    def __init__(self, values: Mapping[str, Any], ignore: Iterable[str] = ()) -> None:
        self._values = values
        self._read = set(IRRELEVANT_KEYS) | set(ignore)
        self._ignored = frozenset(ignore)
        self._problems: list[str] = []

    def count(self, key: str, default: int | None = None) -> int:
        """Read an integer of at least 1; ``default`` if the key is absent or null."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._add_problem(key, value, "an integer of at least 1")
            return 1
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Read a number of at least 0; ``default`` if the key is absent or null."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            self._add_problem(key, value, "a number of at least 0")
            return 1.0
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean; ``default`` if the key is absent or null."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self._add_problem(key, value, "true or false")
            return default
        return value

    def require(self, key: str, *accepted: Any, why: str) -> None:
        """Reject any value except these; an absent key passes.

        Args:
            key: The key.
            accepted: Values that loopkit supports.
            why: Reason for rejecting another value.
        """
        value = self._get(key, None)
        if value is not None and value not in accepted and key not in self._ignored:
            self._problems.append(f"{key} is {value!r}: {why}")

    def get(self, key: str) -> Any:
        """Read a value of any type; None if the key is absent."""
        return self._get(key, None)

    def ignore_keys(self, *keys: str) -> None:
        """Ignore keys of this architecture that do not change its forward pass."""
        self._read.update(keys)

    def reject(self, problem: str) -> None:
        """Add a problem."""
        self._problems.append(problem)

    def raise_problems(self) -> None:
        """Check that every key was read.

        Raises:
            ConfigError: With every problem.
        """
        for key, value in self._values.items():
            if key not in self._read and value not in (None, False, [], {}):
                self._problems.append(
                    f"{key} is {value!r}: loopkit does not read this key; add --ignore {key} if it changes no output"
                )
        if self._problems:
            raise ConfigError("config.json: no recipe can represent this model\n  " + "\n  ".join(self._problems))

    def _get(self, key: str, default: Any) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        return default if value is None else value

    def _add_problem(self, key: str, value: Any, expected: str) -> None:
        state = "is missing" if value is None else f"is {value!r}"
        self._problems.append(f"{key} {state}: it must be {expected}")
