"""What every tokenizer does: there and back, save and load, a fingerprint of its content."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopkit.components.tokenizer import FILE, Lost, Tokenizer, load_tokenizer
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tokenizer.characters import Characters
from loopkit.components.tokenizer.regex import Regex
from loopkit.errors import UserError
from loopkit.recipe import load_recipe
from loopkit.registry.catalog import ComponentError

TEXT = "The café in Zürich , the naïve 日本 game .\n\n x_2 = 3\t!"


def fitted(name: str) -> Tokenizer:
    tokenizer = {"regex": Regex(min_count=1), "bytes": Bytes(), "characters": Characters()}[name]
    tokenizer.fit([TEXT])
    return tokenizer


@pytest.fixture(params=["regex", "bytes", "characters"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return fitted(request.param)


def test_encoding_roundtrips(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode([TEXT])
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.lost(TEXT) == Lost(0, 0)
    assert ids.max() < tokenizer.size
    assert tokenizer.encode([TEXT, ""])[1].shape == (0,)


def test_special_tokens_are_decoded_on_request(tokenizer: Tokenizer) -> None:
    assert tokenizer.eos is not None
    ids = [*tokenizer.encode(["a game"])[0].tolist(), tokenizer.eos]
    assert "<eos>" not in tokenizer.decode(ids)
    assert tokenizer.decode(ids, special=True).endswith("<eos>")


def test_save_and_load(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "there")
    for again in (load_tokenizer(tmp_path / "there"), type(tokenizer).load(tmp_path / "there")):
        assert type(again) is type(tokenizer)
        assert again.fingerprint() == tokenizer.fingerprint()
        assert again.fit_on == tokenizer.fit_on
        np.testing.assert_array_equal(again.encode([TEXT])[0], tokenizer.encode([TEXT])[0])


def test_fingerprint_depends_on_the_vocabulary() -> None:
    more = Regex(min_count=1)
    more.fit([TEXT + " more"])
    assert more.fingerprint() != fitted("regex").fingerprint()
    assert len({fitted(name).fingerprint() for name in ("regex", "bytes", "characters")}) == 3


def test_damaged_and_missing_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / FILE).write_text('{"format": 1, "type"')
    with pytest.raises(ValueError, match="is damaged"):
        load_tokenizer(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({"format": 9}))
    with pytest.raises(ValueError, match="has format 9, not 1"):
        load_tokenizer(tmp_path)


def test_incomplete_characters_decode_to_replacement() -> None:
    (ids,) = Bytes().encode(["é"])
    assert ids.tolist() == [0xC3, 0xA9]
    assert Bytes().decode(ids[:1]) == "\ufffd"


def test_characters_are_sorted_by_frequency() -> None:
    tokenizer = Characters(max_size=7)
    tokenizer.fit(["baabc", "cd"])
    assert tokenizer.tokens[4:] == ["a", "b", "c"]
    assert tokenizer.lost("abde") == Lost(unknown=2)
    assert tokenizer.encode(["d"])[0].tolist() == [tokenizer.unknown]


def test_vocabulary_options_are_validated() -> None:
    with pytest.raises(ValueError, match="max_size is 4"):
        Characters(max_size=4)
    with pytest.raises(ValueError, match="fit_on is empty"):
        Characters(fit_on=())
    with pytest.raises(ValueError, match=r"no token occurs 5 times in train; lower data\.tokenizer\.min_count"):
        Characters(min_count=5).fit(["abc"])


def test_tokenizer_of_a_plugin_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "local_words.py"
    new = "from loopkit.components.tokenizer.bytes import Bytes as Base\n" + (
        'from loopkit.registry import register\n\n@register("tokenizer", "local_words")\n'
        'class Words(Base):\n    """Bytes by another name."""\n    def __init__(self) -> None:\n        pass\n'
    )
    file.write_text(new)
    recipe = load_recipe("wikitext_44m_raw", overrides=["data.tokenizer=local_words"], plugins=[file])
    recipe.data.tokenizer.build().save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved", recipe.data.tokenizer).encode(["ab"])[0].tolist() == [97, 98]
    with pytest.raises(ComponentError, match="no tokenizer is called 'local_words'"):
        load_tokenizer(tmp_path / "saved")
    fitted("bytes").save(tmp_path / "other")
    assert isinstance(load_tokenizer(tmp_path / "other", recipe.data.tokenizer), Bytes)


@pytest.mark.parametrize("name", ["bytes", "characters"])
def test_published_files_encode_equally(name: str) -> None:
    from tokenizers import Tokenizer as Published

    own = fitted(name)
    files = own.published()
    published = Published.from_str(json.dumps(files["tokenizer.json"]))
    for text in (TEXT, "\x00 😀 unseen\r\n", ""):
        ids = published.encode(text, add_special_tokens=False).ids
        assert ids == own.encode([text])[0].tolist()
        assert published.decode(ids) == own.decode(ids)
    assert published.get_vocab_size() == own.size
    assert published.token_to_id(files["tokenizer_config.json"]["pad_token"]) == own.pad
    assert published.token_to_id(files["tokenizer_config.json"]["eos_token"]) == own.eos
