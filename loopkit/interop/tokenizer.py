"""Choose the tokenizer of an imported model, with every end token that the model states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.interop.published import CONFIG, Published, PublishedError, read_object
from loopkit.recipe import component

GENERATION = "generation_config.json"


@dataclass(frozen=True)
class ChosenTokenizer:
    """A tokenizer and its section in a recipe.

    Args:
        plain: The ``data.tokenizer`` section.
        tokenizer: The tokenizer of this section.
        notes: What the user should know.
    """

    plain: dict[str, Any]
    tokenizer: Tokenizer
    notes: tuple[str, ...] = ()


def choose_tokenizer(
    published: Published, files: Path, relative: str, option: str | None, vocabulary: int
) -> ChosenTokenizer:
    """Choose the tokenizer of an imported model.

    Args:
        published: The model's folder.
        files: Folder of the run with the kept files.
        relative: The same, relative to the run, as its recipe writes it.
        option: A tokenizer.json, a folder with one, or the name of a tokenizer of loopkit; None takes the folder's own,
            or token numbers as text if it has none.
        vocabulary: Rows of the model's token table.

    Raises:
        PublishedError: If the folder's end tokens are not token numbers.
        UserError: If the tokenizer learns its vocabulary from a text.
    """
    ends = end_tokens(published)
    if option is not None and not Path(option).exists():
        plain: dict[str, Any] = {"type": option}
        tokenizer: Tokenizer = component("tokenizer", plain).build()
        if tokenizer.fit_on:
            raise UserError(f"--tokenizer {option} learns its vocabulary from a text; give one with a fixed vocabulary")
        return ChosenTokenizer(plain, tokenizer)
    if option is None and not (files / "tokenizer.json").is_file():
        plain = {"type": "numbers", "size": vocabulary} | ({"ends": list(ends)} if ends else {})
        note = f"{published.path} has no tokenizer.json, so text is token numbers; --tokenizer chooses another"
        return ChosenTokenizer(plain, component("tokenizer", plain).build(), (note,))
    path = files if option is None else Path(option).resolve()
    plain = {"type": "huggingface", "path": str(path)}
    tokenizer = component("tokenizer", plain).build()
    end_options, notes = _end_options(tokenizer, ends)
    if end_options:
        tokenizer = component("tokenizer", plain | end_options).build()
    written = {"path": relative if option is None else str(path)}
    return ChosenTokenizer(plain | written | end_options, tokenizer, notes)


def end_tokens(published: Published) -> tuple[int, ...]:
    """Return the end tokens of the published model: those of generation_config.json, else of config.json.

    Raises:
        PublishedError: If they are not token numbers.
    """
    for name in (GENERATION, CONFIG):
        if name not in published.files:
            continue
        stated = read_object(published.path / name).get("eos_token_id")
        if stated is None:
            continue
        ends = stated if isinstance(stated, list) else [stated]
        if not all(isinstance(end, int) and not isinstance(end, bool) and end >= 0 for end in ends):
            raise PublishedError(
                f"{published.path / name}: eos_token_id is {stated!r}; it must be a token number or a list"
            )
        return tuple(dict.fromkeys(ends))
    return ()


def _end_options(tokenizer: Tokenizer, ends: Sequence[int]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options that add end tokens to a tokenizer, and a note on each that it does not have."""
    tokens = {end: tokenizer.token(end) for end in ends}  # type: ignore[attr-defined]
    unknown = [end for end, token in tokens.items() if token is None]
    notes = tuple(f"eos_token_id {end} is not a token of the tokenizer and is ignored" for end in unknown)
    additional = [token for end, token in tokens.items() if token is not None and end != tokenizer.eos]
    options: dict[str, Any] = {}
    if tokenizer.eos is None and additional:
        options["eos"], *additional = additional
    return options | ({"other_ends": additional} if additional else {}), notes
