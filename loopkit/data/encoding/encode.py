"""From the data section of a recipe to encoded splits, through the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.components.source import Document, Source, canonical_split
from loopkit.components.source.formats import check_encodable
from loopkit.components.tokenizer import Tokenizer
from loopkit.data.encoding.cache import cache_folder, digest, entry
from loopkit.data.encoding.pieces import TextPiece, example_pieces, stream_pieces
from loopkit.data.encoding.store import TokenStore, write_store
from loopkit.data.encoding.versions import code_version, options_key
from loopkit.data.split import Prepared, Report, Split
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.recipe.format import DataConfig
    from loopkit.registry import Spec

Progress = Callable[[str, int], None]
"""Called with what is being done and the characters done so far."""


def prepare(
    data: DataConfig,
    *,
    cache: Path | None = None,
    splits: Sequence[str] = ("train", "validation"),
    tokenizer: Tokenizer | None = None,
    progress: Progress = lambda what, characters: None,
) -> Prepared:
    """Fit the tokenizer, encode the splits, and keep both in the cache for the next time.

    Args:
        data: The section of the recipe.
        cache: Folder of the cache; see ``cache_folder`` for the default.
        splits: Which splits.
        tokenizer: Encode with this one, for example a trained run's, instead of fitting the recipe's.
        progress: Called while text is read.

    Raises:
        ValueError: If the data is missing or wrong; the message names cause and remedy.
        OSError: So too; and if the cache cannot be written.
    """
    root = cache_folder(cache)
    source: Source = data.source.build()
    used = tokenizer if tokenizer is not None else _fitted(data.tokenizer, data.source, source, root, progress)
    names = dict.fromkeys(map(canonical_split, splits))
    return Prepared(used, {name: _split(source, data.source, name, used, root, progress) for name in names})


def _fitted(spec: Spec, source_spec: Spec, source: Source, root: Path, progress: Progress) -> Tokenizer:
    """The recipe's tokenizer with its vocabulary, which is fitted once for each text."""
    fresh: Tokenizer = spec.build()
    if not fresh.fit_on:
        return fresh
    names = list(dict.fromkeys(map(canonical_split, fresh.fit_on)))
    code = [code_version(type(fresh)), code_version(type(source))]
    name = digest(
        options_key(spec, contents=True),
        options_key(source_spec, contents=False),
        code,
        [source.layout, source.join, *(source.fingerprint(split) for split in names)],
    )

    def build(folder: Path) -> dict[str, Any]:
        texts = (text for split in names for text in _fit_texts(source, source_spec.name, split, fresh))
        fresh.fit(_told(texts, f"fitting {spec.name} on {', '.join(names)}", progress))
        fresh.save(folder)
        return {"size": fresh.size}

    # by its class, not by its name: a plugin's name may be known to the recipe alone
    return type(fresh).load(entry(root / "tokenizers", name, f"{spec.name} tokenizer", build).folder)


def _fit_texts(source: Source, name: str, split: str, tokenizer: Tokenizer) -> Iterator[str]:
    """What a vocabulary is learned from: the texts that will be encoded, or each document alone."""
    documents = _checked(source.documents(split), name)
    if not tokenizer.fit_joins:
        yield from (document.text for document in documents)
        return
    for piece in _pieces(documents, source, tokenizer):
        for part in piece.parts:
            yield part.text
            if part.target is not None:
                yield part.target


def _split(source: Source, spec: Spec, name: str, tokenizer: Tokenizer, root: Path, progress: Progress) -> Split:
    fingerprint = source.fingerprint(name)
    key = digest(
        options_key(spec, contents=False),
        [fingerprint, source.layout, source.join, source.words, tokenizer.fingerprint()],
        [code_version(type(source)), code_version(type(tokenizer))],
    )

    def build(folder: Path) -> dict[str, Any]:
        count = [0]
        pieces = _pieces(_counted(_checked(source.documents(name), spec.name), count), source, tokenizer)
        tell = lambda characters: progress(f"encoding {name}", characters)  # noqa: E731
        facts = write_store(folder, pieces, tokenizer, examples=source.layout == "examples", tell=tell)
        if facts["tokens"] == 0:
            raise UserError(f"the {name} split of source {spec.name} has no tokens; give more text")
        return facts | {"documents": count[0], "fingerprint": fingerprint}

    found = entry(root / "tokens", key, f"{name} split", build)
    store = TokenStore(found)
    facts = found.facts | {"sha256": store.sha256} | ({"words": None} if source.words is None else {})
    report = Report(**{field: facts[field] for field in Report.__dataclass_fields__})
    pad = 0 if tokenizer.pad is None else tokenizer.pad
    return Split(name, store, source.layout, report, pad, source.words)


def _pieces(documents: Iterable[Document], source: Source, tokenizer: Tokenizer) -> Iterator[TextPiece]:
    if source.layout == "examples":
        return example_pieces(documents, source.words)
    return stream_pieces(documents, source.join, tokenizer.separable, source.words)


def _checked(documents: Iterable[Document], source: str) -> Iterator[Document]:
    """The documents, each of which UTF-8 can hold."""
    for document in documents:
        targets = (part.target for part in document.parts if part.target is not None)
        check_encodable(f"source {source}: document {document.key}", "".join((document.text, *targets)))
        yield document


def _counted(documents: Iterable[Document], count: list[int]) -> Iterator[Document]:
    for document in documents:
        count[0] += 1
        yield document


def _told(texts: Iterable[str], what: str, progress: Progress) -> Iterator[str]:
    """The texts, saying now and then how many characters there were."""
    done = told = 0
    for text in texts:
        done += len(text)
        if done - told >= 2**20:
            progress(what, done)
            told = done
        yield text
