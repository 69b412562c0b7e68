"""WikiText from a folder and, with a stand-in for it, from the hub."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from loopkit.components.source import DataWarning, Source, hub
from loopkit.components.source.wikitext import WikiText
from loopkit.errors import UserError

LINES = [" \n", " = Title = \n", " \n", " One two <unk> . \n", " \n", " \n"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wiki.train.tokens").write_text("".join(LINES))
    (tmp_path / "wiki.valid.tokens").write_text("".join(LINES[3:]))
    return tmp_path


def words(source: Source, split: str) -> int:
    return sum(len(document.text.split()) + (document.lines or 0) for document in source.documents(split))


def test_lines_are_unchanged(folder: Path) -> None:
    documents = [document.text for document in WikiText(variant="2", path=folder).documents("train")]
    assert documents == LINES


def test_dropped_blank_lines_still_count(folder: Path) -> None:
    source = WikiText(variant="2", path=folder, drop_empty=True)
    documents = list(source.documents("train"))
    assert [document.text for document in documents] == [LINES[1], LINES[3]]
    assert sum(document.lines or 0 for document in documents) == len(LINES)
    assert words(source, "train") == words(WikiText(variant="2", path=folder), "train") == 3 + 4 + 6


def test_valid_is_validation(folder: Path) -> None:
    source = WikiText(variant="2", path=folder)
    assert list(source.documents("valid")) == list(source.documents("validation"))
    assert source.fingerprint("valid") == source.fingerprint("validation")


def test_missing_split_is_an_error_on_use(folder: Path) -> None:
    source = WikiText(variant="2", path=folder)
    with pytest.raises(UserError, match=r"no test split, only train, validation; add wiki\.test\.tokens"):
        source.fingerprint("test")


def test_fingerprint_depends_on_content_and_options(folder: Path) -> None:
    source = WikiText(variant="2", path=folder)
    before = source.fingerprint("train")
    assert WikiText(variant="2", path=folder, join="\n\n").fingerprint("train") == before
    assert WikiText(variant="2", path=folder, drop_empty=True).fingerprint("train") != before
    (folder / "wiki.train.tokens").write_text("".join(LINES) + " One more <unk> . \n")
    assert source.fingerprint("train") != before


@pytest.mark.parametrize(
    ("variant", "text", "sign"),
    [("2-raw", " a <unk> b \n", "<unk>"), ("103", " a <unk> b \n", "like WikiText-2"), ("2", " a b \n", "no <unk>")],
)
def test_wrong_variant_warns(tmp_path: Path, variant: str, text: str, sign: str) -> None:
    (tmp_path / "wiki.train.tokens").write_text(text)
    with pytest.warns(DataWarning, match=sign):
        WikiText(variant=variant, path=tmp_path).fingerprint("train")


@pytest.mark.parametrize(
    ("variant", "text", "split"), [("2", " a <unk> b \n", "train"), ("103-raw", " a @-@ b \n", "valid")]
)
def test_right_variant_does_not_warn(tmp_path: Path, variant: str, text: str, split: str) -> None:
    (tmp_path / f"wiki.{split}.raw").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(WikiText(variant=variant, path=tmp_path).fingerprint(split)) == 64


def test_raw_variants_prefer_raw_files(folder: Path) -> None:
    (folder / "wiki.train.raw").write_text(" raw \n")
    assert next(WikiText(variant="2-raw", path=folder).documents("train")).text == " raw \n"
    assert next(WikiText(variant="2", path=folder).documents("train")).text == LINES[0]


def test_parquet_in_hub_layout(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"text": ["", " = A = \n", "", " one two \n"]})
    (tmp_path / "wikitext-2-raw-v1").mkdir()
    parquet.write_table(table, tmp_path / "wikitext-2-raw-v1" / "validation-00000-of-00001.parquet")
    documents = [document.text for document in WikiText(variant="2-raw", path=tmp_path).documents("validation")]
    assert documents == [" \n", " = A = \n", " \n", " one two \n"]


def test_text_files(tmp_path: Path) -> None:
    (tmp_path / "validation.txt").write_text(" one \n")
    assert [d.text for d in WikiText(variant="2-raw", path=tmp_path).documents("valid")] == [" one \n"]


def test_wrong_paths_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.source\.path: .*absent does not exist; set it to a folder with files"):
        WikiText(path=tmp_path / "absent").fingerprint("train")
    file = tmp_path / "wiki.train.tokens"
    file.write_text(" a \n")
    with pytest.raises(UserError, match="is a file; set it to a folder"):
        WikiText(path=file).fingerprint("train")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="is not WikiText: it is empty"):
        WikiText(path=empty).fingerprint("train")
    (empty / "notes.md").write_text("x")
    with pytest.raises(UserError, match=r"it has notes\.md; set it to a folder"):
        WikiText(path=empty).fingerprint("train")


def test_wrong_content_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wiki.train.tokens").write_bytes(b" one <unk> \n caf\xe9 \n")
    with pytest.raises(ValueError, match=r"wiki\.train\.tokens: not UTF-8 text after line .*iconv"):
        list(WikiText(variant="2", path=tmp_path).documents("train"))
    (tmp_path / "wiki.valid.tokens").write_text(" \n \n")
    with pytest.raises(ValueError, match=r"validation split has no text \(2 lines, all blank\)"):
        list(WikiText(variant="2", path=tmp_path, drop_empty=True).documents("valid"))
    (tmp_path / "test.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"test\.parquet: not a parquet file"):
        list(WikiText(variant="2", path=tmp_path).documents("test"))


def test_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    calls = []

    def load_dataset(*args: object, **kwargs: object) -> object:
        calls.append((args, kwargs))
        return datasets.DatasetDict({"validation": datasets.Dataset.from_dict({"text": ["", " = A = \n", " one \n"]})})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(hub, "why_unreachable", lambda: None)
    source = WikiText(variant="103-raw", drop_empty=True)
    assert [d.text for d in source.documents("valid")] == [" = A = \n", " one \n"]
    assert words(source, "valid") == 4 + 3
    ((args, kwargs), *_) = calls
    assert args == ("Salesforce/wikitext", "wikitext-103-raw-v1")
    assert len(str(kwargs["revision"])) == 40
    with pytest.raises(ValueError, match="unknown split 'train'"):
        list(source.documents("train"))


def test_fingerprint_needs_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: pytest.fail("the hub was called"))
    names = {WikiText(variant=v).fingerprint(s) for v in ("2", "2-raw") for s in ("train", "test")}
    assert len(names) == 4


@pytest.mark.parametrize("folder_name", ["wikitext-2", "wikitext-2-raw", "wikitext-103"])
@pytest.mark.parametrize("drop_empty", [False, True])
def test_published_word_counts(shared: Path, folder_name: str, drop_empty: bool) -> None:
    source = WikiText(variant="2", path=shared / "data" / folder_name, drop_empty=drop_empty)
    assert words(source, "validation") == 217_646
    assert words(source, "test") == 245_569
