"""Any text: how it becomes documents, and how they are split."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.source import DataWarning, hub
from loopkit.components.source.held_out import split_of
from loopkit.components.source.text import TextSource
from loopkit.errors import UserError

SPLITS = ("train", "validation", "test")


def texts(source: TextSource, split: str) -> list[str]:
    return [document.text for document in source.documents(split)]


def all_of(path: Path, **options: Any) -> list[str]:
    return texts(TextSource(path=path, validation=0.0, test=0.0, **options), "train")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps({"body": f"document {i}"}) + "\n" for i in range(1000)))
    return file


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("paragraph", ["a\nb", "c"]), ("line", ["a", "b", "c"]), ("file", ["a\nb\n\n \n\nc"])],
)
def test_units_of_a_plain_file(tmp_path: Path, unit: str, expected: list[str]) -> None:
    file = tmp_path / "some.text"
    file.write_text("\n\na\nb\n\n \n\nc\n")
    assert texts(TextSource(path=file, unit=unit, validation=0.0, test=0.0), "train") == expected  # type: ignore[arg-type]


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert texts(TextSource(path=tmp_path, validation=0.0, test=0.0), "train") == ["hello"]


def test_every_document_is_in_one_split(many: Path) -> None:
    source = TextSource(path=many, key="body", validation=0.1, test=0.2)
    parts = {split: texts(source, split) for split in SPLITS}
    assert sorted(text for part in parts.values() for text in part) == sorted(f"document {i}" for i in range(1000))
    assert 70 < len(parts["validation"]) < 130
    assert 160 < len(parts["test"]) < 240
    assert parts == {
        split: texts(TextSource(path=many, key="body", validation=0.1, test=0.2), split) for split in SPLITS
    }


def test_copies_are_in_the_same_split() -> None:
    shares = {"validation": 0.3, "test": 0.3}
    assert {split_of(f"text {i}", shares) for i in range(50)} == set(SPLITS)
    assert split_of("text 1", shares) == split_of("text 1", shares)


def test_folder_is_split_by_file_names(tmp_path: Path) -> None:
    for name, text in (
        ("train-0.txt", "a"),
        ("train-1.txt", "b"),
        ("valid.jsonl", '{"text": "c"}\n'),
        ("README.md", "x"),
    ):
        (tmp_path / name).write_text(text)
    source = TextSource(path=tmp_path, test=0.0)
    assert texts(source, "train") == ["a", "b"]
    assert texts(source, "validation") == ["c"]
    with pytest.raises(ValueError, match="no test split, only train, validation"):
        texts(source, "test")


def test_files_option_names_splits(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    source = TextSource(files={"train": tmp_path / "a", "dev": tmp_path / "b"})
    assert (texts(source, "train"), texts(source, "validation")) == (["one"], ["two"])
    assert source.fingerprint("train") != source.fingerprint("validation")


def test_parquet(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"text": ["a", " ", "b"]}), tmp_path / "x.parquet")
    assert texts(TextSource(path=tmp_path, validation=0.0, test=0.0), "train") == ["a", "b"]
    with pytest.raises(ValueError, match=r"no column 'body'; it has text; set its name in data\.source"):
        texts(TextSource(path=tmp_path, key="body", validation=0.0, test=0.0), "train")


def test_document_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    assert [d.lines for d in TextSource(path=tmp_path, validation=0.0, test=0.0).documents("train")] == [2, 1]


def test_fingerprint_depends_on_the_text(many: Path) -> None:
    source = TextSource(path=many, key="body")
    variants = [
        TextSource(path=many, key="body", validation=0.2),
        TextSource(path=many, key="body", unit="line"),
        TextSource(path=many),
    ]
    assert source.fingerprint("train") not in {variant.fingerprint("train") for variant in variants}
    assert source.fingerprint("train") == TextSource(path=many, key="body", join=" ").fingerprint("train")
    before = source.fingerprint("train")
    many.write_text(many.read_text().replace("document 7", "Document 7"))
    assert TextSource(path=many, key="body").fingerprint("train") != before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"text": \n', r":2: not JSON .*one JSON object per line"),
        ('{"body": "a"}\n', r":1: no text under 'text' \(it has 'body'\); set data\.source\.key"),
        ("1\n", r":1: not a JSON object"),
        ('[{"text": "a"}]', r"x\.jsonl: a JSON list, .* rename it to end in \.json"),
        ('{"text": "a"}\n{"text": 3}\n', r":2: 'text' is a value of type int, not text"),
        ('{"text": "a"}\n{"text": null}\n', r":2: 'text' is null, not text; remove the row, or set data\.source\.key"),
        ('\n{"text": "a\\ud83d"}\n', r":2: 'text' has \\ud83d at character 2, which is half of a surrogate pair"),
    ],
)
def test_wrong_json_lines_name_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        all_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.JSONL", '{"text": "one"}\n{"text": "two"}\n'),
        ("a.ndjson", '{"text": "one"}\n{"text": "two"}\n'),
        ("a.json", '[{"text": "one"},\n {"text": "two"}]'),
        ("a.JSON", '[{"text": "one"}, {"text": "two"}]'),
        ("a.TXT", "one\n\ntwo\n"),
        ("a", "one\n\ntwo\n"),
    ],
)
def test_suffixes_ignore_case(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert all_of(tmp_path / name) == ["one", "two"]


def test_split_names_ignore_case(tmp_path: Path) -> None:
    for name in ("TRAIN.TXT", "Valid-0.txt"):
        (tmp_path / name).write_text(name)
    assert texts(TextSource(path=tmp_path), "validation") == ["Valid-0.txt"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n', mtime=0), r"compressed with gzip; decompress it with gunzip"),
        ("a.jsonl", gzip.compress(b'{"text": "a"}\n', mtime=0), r"compressed with gzip"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd rest", r"compressed with zstd; decompress it with zstd -d"),
        ("a.parquet", gzip.compress(b"a", mtime=0), r"compressed with gzip"),
        ("a.txt", b"PAR1 rest", r"a parquet file; rename it to end in \.parquet"),
        ("a.txt", "text".encode("utf-16"), r"UTF-16 text; convert it with iconv -f utf-16 -t utf-8"),
        (
            "a.jsonl",
            '{"text": "a"}'.encode("utf-16-le"),
            r"byte 1 is 0, so this is not UTF-8 text but binary",
        ),
        ("a.txt", b"version https://git-lfs.github.com/spec/v1\n", r"Git LFS.*git lfs pull"),
        ("a.txt", b'\n{"text": "a"}\n{"text": "b"}\n', r"JSON lines, not plain text; rename it to end in \.jsonl"),
        ("a.txt", b'{"text": "' + b"a" * 2**17 + b'"}\n', r"JSON lines, not plain text"),
        ("a.text", b'[\n {"text": "a"}]', r"JSON list, not plain text; rename .* data\.source\.format to text"),
        ("a.json", b'{"text": "a"}\n{"text": "b"}\n', r"not JSON .*rename JSON lines to end in \.jsonl"),
    ],
)
def test_content_must_match_the_suffix(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}: .*{message}"):
        all_of(tmp_path / name)


@pytest.mark.parametrize("content", ["{a set}\n", "[1] See below.\n", '{"unfinished\n', "{1: 2}\n"])
def test_text_with_braces_is_not_json(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    assert all_of(tmp_path / "a.txt") == [content.strip()]


def test_format_option_overrides_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('{"text": "one"}\n')
    assert all_of(tmp_path / "a.txt", format="json_lines") == ["one"]
    assert all_of(tmp_path / "a.txt", format="text") == ['{"text": "one"}']


def test_skipped_files_are_listed(tmp_path: Path) -> None:
    for name in ("train-00.jsonl", "train-02.jsonl"):
        (tmp_path / name).write_text('{"text": "a"}\n')
    (tmp_path / "train-01.jsonl.gz").write_bytes(gzip.compress(b'{"text": "b"}\n'))
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".hidden").write_text("mark")
    listed = r"2 files are read and 2 are not: train-01\.jsonl\.gz, README\.md; decompress those to read"
    with pytest.warns(DataWarning, match=listed):
        assert all_of(tmp_path) == ["a", "a"]
    (tmp_path / "README.md").unlink()
    (tmp_path / "train-01.jsonl.gz").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        all_of(tmp_path)


def test_fingerprint_depends_on_the_format(tmp_path: Path) -> None:
    """The same bytes under another suffix are other documents."""
    prints = set()
    for name in ("x", "x.jsonl", "x.json"):
        (tmp_path / name).write_text('[{"text": "a"}]')
        prints.add(TextSource(path=tmp_path / name).fingerprint("train"))
    prints.add(TextSource(path=tmp_path / "x", format="json_lines").fingerprint("train"))
    assert len(prints) == 4


def test_invalid_options_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set exactly one of path, files and dataset, not none"):
        TextSource()
    with pytest.raises(ValueError, match="not path and dataset"):
        TextSource(path=tmp_path, dataset="a/b")
    with pytest.raises(ValueError, match="leave nothing to train on"):
        TextSource(path=tmp_path, validation=0.6, test=0.5)
    with pytest.raises(UserError, match=r"data\.source\.path: .*absent does not exist"):
        TextSource(path=tmp_path / "absent").fingerprint("train")
    with pytest.raises(UserError, match=r"has no \.jsonl, \.md, \.parquet, \.txt file: it is empty"):
        TextSource(path=tmp_path).fingerprint("train")
    with pytest.raises(UserError, match=r"data\.source\.files\.train: .*no does not exist"):
        TextSource(files={"train": tmp_path / "no"}).fingerprint("train")
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"a\.txt: not UTF-8 text"):
        texts(TextSource(path=tmp_path), "train")
    (tmp_path / "a.txt").write_text("only one")
    with pytest.raises(ValueError, match=r"no text; a share of 0\.01 leaves none, raise it or set files"):
        texts(TextSource(path=tmp_path, validation=0.01), "validation")
    with pytest.raises(ValueError, match="no train split to hold it out of"):
        texts(TextSource(files={"test": tmp_path / "a.txt"}), "validation")


def test_hub_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"story": [f"story {i}" for i in range(200)] + [" "]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: datasets.DatasetDict({"train": rows}))
    monkeypatch.setattr(hub, "why_unreachable", lambda: None)
    source = TextSource(dataset="owner/stories", key="story", validation=0.2, test=0.0)
    assert sorted(texts(source, "train") + texts(source, "validation")) == sorted(f"story {i}" for i in range(200))
    assert source.fingerprint("train") == TextSource(
        dataset="owner/stories", key="story", validation=0.2, test=0.0
    ).fingerprint("train")
    with pytest.raises(ValueError, match="no column 'text'; it has story"):
        texts(TextSource(dataset="owner/stories"), "train")


def test_missing_network_suggests_a_local_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: "no cable")
    with pytest.raises(hub.HubUnreachable, match=r"dataset loopkit-tests/absent .*no cable.*set data\.source\.path"):
        texts(TextSource(dataset="loopkit-tests/absent"), "train")


def test_pinned_fingerprint_needs_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: pytest.fail("the hub was called"))
    assert TextSource(dataset="a/b", revision="0" * 40).fingerprint("train") != TextSource(
        dataset="a/b", revision="1" * 40
    ).fingerprint("train")
