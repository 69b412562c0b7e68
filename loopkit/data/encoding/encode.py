"""Encode the splits of a recipe's data section, with a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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
"""Called with a description of the work and the number of characters done."""


def prepare(
    data: DataConfig,
    *,
    cache: Path | None = None,
    splits: Sequence[str] = ("train", "validation"),
    tokenizer: Tokenizer | None = None,
    progress: Progress = lambda what, characters: None,
) -> Prepared:
    """Fit the tokenizer and encode the splits; both are cached.

    Args:
        data: The data section of the recipe.
        cache: Folder of the cache; see ``cache_folder`` for the default.
        splits: Names of the splits.
        tokenizer: Encode with this tokenizer, for example a trained run's, instead of the recipe's.
        progress: Called while text is read.

    Raises:
        UserError: If the data is missing or invalid, or the cache cannot be written.
    """
    root = cache_folder(cache)
    source: Source = data.source.build()
    tokenizer = (
        tokenizer if tokenizer is not None else _fit_tokenizer(data.tokenizer, data.source, source, root, progress)
    )
    names = dict.fromkeys(map(canonical_split, splits))
    encoded = {name: _encode_split(source, data.source, name, tokenizer, root, progress) for name in names}
    return Prepared(tokenizer, encoded)


def _fit_tokenizer(spec: Spec, source_spec: Spec, source: Source, root: Path, progress: Progress) -> Tokenizer:
    """Build the recipe's tokenizer and fit its vocabulary, or load it from the cache."""
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
        fresh.fit(_report_progress(texts, f"fitting {spec.name} on {', '.join(names)}", progress))
        fresh.save(folder)
        return {"size": fresh.size}

    # load by class: the name of a plugin may be registered only in the recipe
    return type(fresh).load(entry(root / "tokenizers", name, f"{spec.name} tokenizer", build).folder)


def _fit_texts(source: Source, name: str, split: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the text to fit on, in the parts in which it is encoded or by document."""
    documents = _check_documents(source.documents(split), name)
    if not tokenizer.fit_joins:
        yield from (document.text for document in documents)
        return
    for piece in _pieces(documents, source, tokenizer):
        for part in piece.parts:
            yield part.text
            if part.target is not None:
                yield part.target


def _encode_split(source: Source, spec: Spec, name: str, tokenizer: Tokenizer, root: Path, progress: Progress) -> Split:
    fingerprint = source.fingerprint(name)
    key = digest(
        options_key(spec, contents=False),
        [fingerprint, source.layout, source.join, source.words, tokenizer.fingerprint()],
        [code_version(type(source)), code_version(type(tokenizer))],
    )

    def build(folder: Path) -> dict[str, Any]:
        num_documents = [0]
        pieces = _pieces(
            _count_documents(_check_documents(source.documents(name), spec.name), num_documents), source, tokenizer
        )
        report = partial(progress, f"encoding {name}")
        facts = write_store(folder, pieces, tokenizer, examples=source.layout == "examples", progress=report)
        if facts["tokens"] == 0:
            raise UserError(f"the {name} split of source {spec.name} has no tokens; add text")
        return facts | {"documents": num_documents[0], "fingerprint": fingerprint}

    cached = entry(root / "tokens", key, f"{name} split", build)
    store = TokenStore(cached)
    facts = cached.facts | {"sha256": store.sha256} | ({"words": None} if source.words is None else {})
    report = Report(**{field: facts[field] for field in Report.__dataclass_fields__})
    pad = 0 if tokenizer.pad is None else tokenizer.pad
    return Split(name, store, source.layout, report, pad, source.words)


def _pieces(documents: Iterable[Document], source: Source, tokenizer: Tokenizer) -> Iterator[TextPiece]:
    if source.layout == "examples":
        return example_pieces(documents, source.words)
    return stream_pieces(documents, source.join, tokenizer.separable, source.words)


def _check_documents(documents: Iterable[Document], source: str) -> Iterator[Document]:
    """Yield the documents after checking that UTF-8 can encode them."""
    for document in documents:
        targets = (part.target for part in document.parts if part.target is not None)
        check_encodable(f"source {source}: document {document.key}", "".join((document.text, *targets)))
        yield document


def _count_documents(documents: Iterable[Document], num_documents: list[int]) -> Iterator[Document]:
    for document in documents:
        num_documents[0] += 1
        yield document


def _report_progress(texts: Iterable[str], what: str, progress: Progress) -> Iterator[str]:
    """Yield the texts and report the number of characters about every million."""
    done = reported = 0
    for text in texts:
        done += len(text)
        if done - reported >= 2**20:
            progress(what, done)
            reported = done
        yield text
