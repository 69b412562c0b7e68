"""Tokenizers of the Hugging Face library, from files and, with a stand-in, from the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.source import hub
from loopkit.components.tokenizer import Lost, load_tokenizer
from loopkit.components.tokenizer.huggingface import HuggingFace
from loopkit.errors import UserError

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A tokenizer of four words, which drops blanks and truncates."""
    model = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "[SEP]": 3, "[PAD]": 5}, "[UNK]")
    )
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.post_processor = tokenizers.processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    model.enable_truncation(2)
    model.enable_padding(pad_id=5, pad_token="[PAD]", length=8)
    model.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_published_tokenizer(shared: Path) -> None:
    tokenizer = HuggingFace(path=shared / "data/smollm2-tokenizer")
    assert tokenizer.encode(["Hello world"])[0].tolist() == [19556, 905]
    assert tokenizer.size == 49_152
    assert tokenizer.separable
    text = "Zürich 日本 \n\n 12"
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text
    assert tokenizer.lost(text) == Lost()
    assert tokenizer.decode([tokenizer.eos or 0], special=True) == "<|endoftext|>"


def test_cutting_changes_no_token_of_real_text(shared: Path) -> None:
    from loopkit.components.tokenizer.huggingface import _cut

    tokenizer = HuggingFace(path=shared / "data/smollm2-tokenizer/tokenizer.json")
    text = (shared / "data/wikitext-2-raw/wiki.valid.raw").read_text()[:50_000]
    ids, *parts = tokenizer.encode([text, *_cut(text)])
    assert ids.tolist() == [number for part in parts for number in part.tolist()]
    assert len(parts) > 5000


def test_encoding_ignores_padding_truncation_and_templates(words: Path) -> None:
    tokenizer = HuggingFace(path=words)
    assert tokenizer.encode(["a b a b a"])[0].tolist() == [1, 2, 1, 2, 1]
    assert (tokenizer.unknown, tokenizer.eos, tokenizer.pad, tokenizer.bos) == (0, 3, 5, None)
    assert tokenizer.size == 6  # numbers run to 5, though there are five of them
    assert tokenizer.lost("a xyz b") == Lost(unknown=3, dropped=1)  # decoding puts one blank between words


@pytest.mark.parametrize(
    ("normalizer", "text", "lost"),
    [
        (tokenizers.normalizers.Lowercase(), "The End", 2),
        (tokenizers.normalizers.BertNormalizer(lowercase=False, strip_accents=True), "café", 1),
        (tokenizers.normalizers.NFC(), "cafe\u0301", 2),
        (tokenizers.normalizers.Replace(tokenizers.Regex(" +"), " "), "a   b", 2),
        (tokenizers.normalizers.Strip(), " a ", 2),
    ],
    ids=["lowercase", "accents", "NFC", "blanks", "strip"],
)
def test_normalized_characters_are_lost(tmp_path: Path, normalizer: Any, text: str, lost: int) -> None:
    model = tokenizers.Tokenizer(tokenizers.models.BPE(byte_alphabet(), []))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.save(str(tmp_path / "tokenizer.json"))
    assert HuggingFace(path=tmp_path).lost(text) == Lost()
    model.normalizer = normalizer
    model.save(str(tmp_path / "tokenizer.json"))
    assert HuggingFace(path=tmp_path).lost(text) == Lost(dropped=lost)


def byte_alphabet() -> dict[str, int]:
    return {sign: number for number, sign in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}


def test_roles_from_options_or_configuration(words: Path) -> None:
    (words / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "b"}, "bos_token": "absent"}))
    assert HuggingFace(path=words).eos == 2
    assert HuggingFace(path=words).bos is None
    assert HuggingFace(path=words, eos="a").eos == 1
    with pytest.raises(ValueError, match=r"data\.tokenizer\.bos: the tokenizer has no token '<s>'"):
        HuggingFace(path=words, bos="<s>")


def test_save_and_load(words: Path, tmp_path: Path) -> None:
    tokenizer = HuggingFace(path=words, eos="b")
    tokenizer.save(tmp_path / "run")
    again = load_tokenizer(tmp_path / "run")
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.eos == 2
    assert again.encode(["a b"])[0].tolist() == [1, 2]


def test_prefix_per_text_is_not_separable(tmp_path: Path) -> None:
    model = tokenizers.Tokenizer(tokenizers.models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -1.0)], unk_id=0))
    normalizers = tokenizers.normalizers
    model.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    model.save(str(tmp_path / "tokenizer.json"))
    assert not HuggingFace(path=tmp_path).separable


def test_invalid_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set either path"):
        HuggingFace()
    with pytest.raises(UserError, match=r"data\.tokenizer\.path: .*tokenizer\.json does not exist"):
        HuggingFace(path=tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        HuggingFace(path=tmp_path)
    file.write_text("{}")
    with pytest.raises(ValueError, match="not a tokenizer of the tokenizers library"):
        HuggingFace(path=tmp_path)
    file.write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="not UTF-8"):
        HuggingFace(path=tmp_path)


def test_from_the_hub(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def download(name: str, file: str, revision: str | None = None) -> str:
        assert name == "owner/model"
        if not (words / file).exists():
            raise huggingface_hub.errors.LocalEntryNotFoundError(file)
        return str(words / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "why_unreachable", lambda: None)
    assert HuggingFace(name="owner/model").eos == 3


def test_missing_network_suggests_a_local_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: "no cable")
    with pytest.raises(hub.HubUnreachable, match=r"tokenizer loopkit-tests/absent .*set data\.tokenizer\.path"):
        HuggingFace(name="loopkit-tests/absent")
