"""The tokenizer of an imported model: its own or another, with every token that ends a text."""

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
    """A tokenizer and how a recipe writes it.

    Args:
        plain: The ``data.tokenizer`` section.
        tokenizer: What it builds.
        notes: What the user should know.
    """

    plain: dict[str, Any]
    tokenizer: Tokenizer
    notes: tuple[str, ...] = ()


def choose_tokenizer(published: Published, own: Path, shown: str, wanted: str | None, rows: int) -> ChosenTokenizer:
    """The tokenizer of an imported model.

    Args:
        published: The model's folder.
        own: Where the run keeps the folder's files.
        shown: That place as the run's recipe names it.
        wanted: A tokenizer.json, a folder with one, or the name of a tokenizer of loopkit; None takes the folder's own,
            or token numbers as text where it has none.
        rows: Rows of the model's token table.

    Raises:
        PublishedError: If the folder's end tokens are not token numbers.
    """
    ends = end_tokens(published)
    if wanted is not None and not Path(wanted).exists():
        plain: dict[str, Any] = {"type": wanted}
        made: Tokenizer = component("tokenizer", plain).build()
        if made.fit_on:
            raise UserError(f"--tokenizer {wanted} learns its vocabulary from a text; give one that is fixed")
        return ChosenTokenizer(plain, made)
    if wanted is None and not (own / "tokenizer.json").is_file():
        plain = {"type": "numbers", "size": rows} | ({"ends": list(ends)} if ends else {})
        note = f"{published.path} has no tokenizer.json: text is token numbers; --tokenizer gives it another"
        return ChosenTokenizer(plain, component("tokenizer", plain).build(), (note,))
    path = own if wanted is None else Path(wanted).resolve()
    plain = {"type": "huggingface", "path": str(path)}
    made = component("tokenizer", plain).build()
    options, notes = _end_options(made, ends)
    if options:
        made = component("tokenizer", plain | options).build()
    return ChosenTokenizer(plain | {"path": shown if wanted is None else str(path)} | options, made, notes)


def end_tokens(published: Published) -> tuple[int, ...]:
    """The tokens at which the published model stops: those of generation_config.json, else of config.json.

    Raises:
        PublishedError: If they are not token numbers.
    """
    for name in (GENERATION, CONFIG):
        if name not in published.kept:
            continue
        stated = read_object(published.path / name).get("eos_token_id")
        if stated is None:
            continue
        ends = stated if isinstance(stated, list) else [stated]
        if not all(isinstance(end, int) and not isinstance(end, bool) and end >= 0 for end in ends):
            raise PublishedError(f"{published.path / name}: eos_token_id is {stated!r}, not a token number or a list")
        return tuple(dict.fromkeys(ends))
    return ()


def _end_options(tokenizer: Tokenizer, ends: Sequence[int]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Options that make a tokenizer end texts at these tokens as well, and a note on those that it does not have."""
    texts = {end: tokenizer.token(end) for end in ends}  # type: ignore[attr-defined]
    strange = [end for end, text in texts.items() if text is None]
    notes = tuple(f"eos_token_id {end} is not a token of the tokenizer, so no text ends there" for end in strange)
    others = [text for end, text in texts.items() if text is not None and end != tokenizer.eos]
    options: dict[str, Any] = {}
    if tokenizer.eos is None and others:
        options["eos"], *others = others
    return options | ({"other_ends": others} if others else {}), notes
