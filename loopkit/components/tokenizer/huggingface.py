"""A tokenizer of the Hugging Face ``tokenizers`` library, from a file or the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from loopkit.components.source.hub import reach_hub
from loopkit.components.tokenizer import Lost, Tokenizer, altered
from loopkit.errors import UserError, file_errors
from loopkit.registry import register

if TYPE_CHECKING:
    import tokenizers

SAMPLE = (
    'The Café\'s 12,345 naïve  words_of\tßtraße…\n\n  x=[1]; "日本語" \u200b🙂 end .\n'
    "cafe\u0301 \ufb01n \u1112\u1161\u11ab \uff21 I\u0130 don 't \r\n do n't\n"
)
"""Text that a tokenizer which normalizes, lowercases, strips or cleans up does not restore."""
ROLES = ("pad", "bos", "eos", "unknown")
_DEFAULT_TOKENS = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "bos": ("<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<|startoftext|>"),
    "eos": ("</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]"),
}


@register("tokenizer", "huggingface", exactly_one=("path", "name"))
class HuggingFace(Tokenizer):
    """The tokenizer of a published model.

    No special tokens are added. Special tokens in the text of a document are encoded as such, except in literal parts,
    such as the problems and solutions of a conversation. Pad, bos and eos are those of the options, else of
    tokenizer_config.json in the same folder, else of their usual names.

    Args:
        path: A tokenizer.json, or a folder with one.
        name: Name on the hub, as owner/name, instead of a path.
        revision: Commit, branch or tag on the hub; null for the newest.
        pad: Text of the padding token.
        bos: Text of the token that starts a text.
        eos: Text of the token that ends a text.
        other_ends: Other tokens that end a text, for models that have several.

    Raises:
        UserError: If the file is not a tokenizer, or a token does not exist.
    """

    def __init__(
        self,
        *,
        path: Path | None = None,
        name: str | None = None,
        revision: str | None = None,
        pad: str | None = None,
        bos: str | None = None,
        eos: str | None = None,
        other_ends: list[str] | None = None,
    ) -> None:
        if (path is None) == (name is None):
            raise UserError("data.tokenizer: set either path (a tokenizer.json or its folder) or name (on the hub)")
        files = _local(path) if path is not None else _from_hub(str(name), revision)
        try:
            with file_errors(files["tokenizer.json"], "read"):
                inner = json.loads(files["tokenizer.json"].read_text(encoding="utf-8"))
            self._set(
                inner, _find_roles(inner, files.get("tokenizer_config.json"), {"pad": pad, "bos": bos, "eos": eos})
            )
            self.other_ends = _token_ids(_vocabulary(inner), other_ends or ())
        except UnicodeDecodeError as error:
            raise UserError(f"{files['tokenizer.json']}: not UTF-8 text; set a tokenizer.json") from error
        except json.JSONDecodeError as error:
            raise UserError(f"{files['tokenizer.json']}: not JSON ({error}); set a tokenizer.json") from error

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encodings = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=self._dtype) for encoding in encodings]

    def encode_literal(self, texts: Sequence[str]) -> list[np.ndarray]:
        self._inner.encode_special_tokens = True
        try:
            return self.encode(texts)
        finally:
            self._inner.encode_special_tokens = False

    def token(self, number: int) -> str | None:
        """Return the text of a token; ``None`` if there is no token with this id."""
        return self._inner.id_to_token(number)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return self._inner.decode([int(i) for i in ids], skip_special_tokens=not special)

    def lost(self, text: str) -> Lost:
        if self._lossless:
            return Lost()
        encoding = self._inner.encode(text, add_special_tokens=False)
        pairs = list(zip(encoding.ids, encoding.offsets, strict=True))
        unknown = sum(stop - start for number, (start, stop) in pairs if number == self.unknown)
        back = self.decode([number for number, _ in pairs if number != self.unknown], special=True)
        return Lost(unknown, max(altered(text, back) - unknown, 0))

    def published(self) -> dict[str, Any]:
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        for role in ROLES:
            if (number := getattr(self, role)) is not None:
                config["unk_token" if role == "unknown" else f"{role}_token"] = self.token(number)
        return {"tokenizer.json": self.state()["tokenizer"], "tokenizer_config.json": config}

    def state(self) -> dict[str, Any]:
        state = {"tokenizer": json.loads(self._inner.to_str()), "roles": {role: getattr(self, role) for role in ROLES}}
        # omitted if empty, so that fingerprints of earlier versions remain valid
        return state | ({"other_ends": list(self.other_ends)} if self.other_ends else {})

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._set(state["tokenizer"], state["roles"])
        tokenizer.other_ends = tuple(state.get("other_ends", ()))
        return tokenizer

    def _set(self, inner: Mapping[str, Any], roles: Mapping[str, int | None]) -> None:
        import tokenizers

        try:
            self._inner: tokenizers.Tokenizer = tokenizers.Tokenizer.from_str(json.dumps(inner))
        except Exception as error:  # the library raises Exception itself
            raise UserError(f"data.tokenizer: not a tokenizer of the tokenizers library: {error}") from error
        self._inner.no_truncation()
        self._inner.no_padding()
        self.size = max(self._inner.get_vocab().values()) + 1
        self.pad, self.bos, self.eos, self.unknown = (roles[role] for role in ROLES)
        self._dtype = np.uint16 if self.size <= 2**16 else np.uint32
        ids, *parts = (array.tolist() for array in self.encode([SAMPLE, *_cut(SAMPLE)]))
        self.separable = ids == [number for part in parts for number in part]
        self._lossless = self.unknown not in ids and self.decode(ids) == SAMPLE


def _cut(text: str) -> list[str]:
    """Cut a text before every space and end of line that follows a letter or digit."""
    cuts = [i for i in range(1, len(text)) if text[i - 1].isalnum() and text[i] in " \n"]
    return [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _local(path: Path) -> dict[str, Path]:
    folder = path if path.is_dir() else path.parent
    file = folder / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"data.tokenizer.path: {file} does not exist; set it to a tokenizer.json or a folder with one")
    config = folder / "tokenizer_config.json"
    return {"tokenizer.json": file} | ({"tokenizer_config.json": config} if config.is_file() else {})


def _from_hub(name: str, revision: str | None) -> dict[str, Path]:
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    with reach_hub(f"tokenizer {name}", "set data.tokenizer.path to a local tokenizer.json"):
        try:
            files = {"tokenizer.json": huggingface_hub.hf_hub_download(name, "tokenizer.json", revision=revision)}
        except LocalEntryNotFoundError:
            raise
        except HfHubHTTPError as error:
            raise UserError(f"data.tokenizer.name: no tokenizer.json under {name!r} on the hub ({error})") from error
        try:
            config = "tokenizer_config.json"
            files[config] = huggingface_hub.hf_hub_download(name, config, revision=revision)
        except EntryNotFoundError:
            pass  # an old repository, or a cache without it; fall back to the usual names
    return {key: Path(file) for key, file in files.items()}


def _find_roles(
    inner: Mapping[str, Any], config: Path | None, options: Mapping[str, str | None]
) -> dict[str, int | None]:
    """Return the ids of the special tokens: from the options, else the configuration, else their usual names."""
    numbers = _vocabulary(inner)
    configured = json.loads(config.read_text(encoding="utf-8")) if config else {}
    roles: dict[str, int | None] = {}
    for role in ROLES:
        token = options.get(role)
        if token is not None and token not in numbers:
            raise UserError(f"data.tokenizer.{role}: the tokenizer has no token {token!r}; set one of its tokens")
        stated = configured.get("unk_token" if role == "unknown" else f"{role}_token")
        stated = stated.get("content") if isinstance(stated, dict) else stated
        names = [token] if token is not None else [stated] if stated in numbers else list(_DEFAULT_TOKENS[role])
        roles[role] = next((numbers[name] for name in names if name in numbers), None)
    return roles


def _vocabulary(inner: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of all tokens, by text."""
    vocabulary = inner.get("model", {}).get("vocab")
    numbers = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    return numbers | {token["content"]: token["id"] for token in inner.get("added_tokens", ())}


def _token_ids(numbers: Mapping[str, int], texts: Sequence[str]) -> tuple[int, ...]:
    for text in texts:
        if text not in numbers:
            raise UserError(f"data.tokenizer.other_ends: the tokenizer has no token {text!r}; set tokens that it has")
    return tuple(numbers[text] for text in texts)
