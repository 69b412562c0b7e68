"""Any text: how it becomes documents, and how they are split."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.components.source import hub
from loopkit.components.source.held_out import split_of
from loopkit.components.source.text import Text
from loopkit.errors import UserError

SPLITS = ("train", "validation", "test")


def texts(source: Text, split: str) -> list[str]:
    return [document.text for document in source.documents(split)]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps({"body": f"document {i}"}) + "\n" for i in range(1000)))
    return file


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [("paragraph", ["a\nb", "c"]), ("line", ["a", "b", "c"]), ("file", ["a\nb\n\n \n\nc"])],
)
def test_units_of_a_plain_file(tmp_path: Path, unit: str, wanted: list[str]) -> None:
    file = tmp_path / "some.text"
    file.write_text("\n\na\nb\n\n \n\nc\n")
    assert texts(Text(path=file, unit=unit, validation=0.0, test=0.0), "train") == wanted  # type: ignore[arg-type]


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert texts(Text(path=tmp_path, validation=0.0, test=0.0), "train") == ["hello"]


def test_every_document_is_in_one_split(many: Path) -> None:
    source = Text(path=many, key="body", validation=0.1, test=0.2)
    parts = {split: texts(source, split) for split in SPLITS}
    assert sorted(text for part in parts.values() for text in part) == sorted(f"document {i}" for i in range(1000))
    assert 70 < len(parts["validation"]) < 130
    assert 160 < len(parts["test"]) < 240
    assert parts == {split: texts(Text(path=many, key="body", validation=0.1, test=0.2), split) for split in SPLITS}


def test_copies_stay_together() -> None:
    shares = {"validation": 0.3, "test": 0.3}
    assert {split_of(f"text {i}", shares) for i in range(50)} == set(SPLITS)
    assert split_of("text 1", shares) == split_of("text 1", shares)


def test_a_folder_split_by_files(tmp_path: Path) -> None:
    for name, text in (
        ("train-0.txt", "a"),
        ("train-1.txt", "b"),
        ("valid.jsonl", '{"text": "c"}\n'),
        ("README.md", "x"),
    ):
        (tmp_path / name).write_text(text)
    source = Text(path=tmp_path, test=0.0)
    assert texts(source, "train") == ["a", "b"]
    assert texts(source, "validation") == ["c"]
    with pytest.raises(ValueError, match="no test split, only train, validation"):
        texts(source, "test")


def test_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    source = Text(files={"train": tmp_path / "a", "dev": tmp_path / "b"})
    assert (texts(source, "train"), texts(source, "validation")) == (["one"], ["two"])
    assert source.fingerprint("train") != source.fingerprint("validation")


def test_parquet(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"text": ["a", " ", "b"]}), tmp_path / "x.parquet")
    assert texts(Text(path=tmp_path, validation=0.0, test=0.0), "train") == ["a", "b"]
    with pytest.raises(ValueError, match=r"no column 'body'; it has text; set data\.source\.key"):
        texts(Text(path=tmp_path, key="body", validation=0.0, test=0.0), "train")


def test_lines_of_a_document_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    assert [d.lines for d in Text(path=tmp_path, validation=0.0, test=0.0).documents("train")] == [2, 1]


def test_the_fingerprint_follows_what_changes_the_text(many: Path) -> None:
    source = Text(path=many, key="body")
    others = [Text(path=many, key="body", validation=0.2), Text(path=many, key="body", unit="line"), Text(path=many)]
    assert source.fingerprint("train") not in {other.fingerprint("train") for other in others}
    assert source.fingerprint("train") == Text(path=many, key="body", join=" ").fingerprint("train")
    before = source.fingerprint("train")
    many.write_text(many.read_text().replace("document 7", "Document 7"))
    assert Text(path=many, key="body").fingerprint("train") != before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"text": \n', r":2: not JSON .*one JSON object a line"),
        ('{"body": "a"}\n', r":1: no text under 'text' \(it has 'body'\); set data\.source\.key"),
        ("[1]\n", r":1: no text under 'text' \(it is not an object\)"),
        ('{"text": 3}\n', r":1: no text under 'text'"),
    ],
)
def test_wrong_json_lines_name_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        texts(Text(path=tmp_path, validation=0.0, test=0.0), "train")


def test_wrong_choices_name_cause_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set exactly one of path, files and dataset, not none"):
        Text()
    with pytest.raises(ValueError, match="not path and dataset"):
        Text(path=tmp_path, dataset="a/b")
    with pytest.raises(ValueError, match="leave nothing to train on"):
        Text(path=tmp_path, validation=0.6, test=0.5)
    with pytest.raises(UserError, match=r"data\.source\.path: .*absent does not exist"):
        Text(path=tmp_path / "absent").fingerprint("train")
    with pytest.raises(UserError, match=r"has no \.jsonl, \.md, \.parquet, \.txt file: it is empty"):
        Text(path=tmp_path).fingerprint("train")
    with pytest.raises(UserError, match=r"data\.source\.files\.train: .*no does not exist"):
        Text(files={"train": tmp_path / "no"}).fingerprint("train")
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"a\.txt: not UTF-8 text"):
        texts(Text(path=tmp_path), "train")
    (tmp_path / "a.txt").write_text("only one")
    with pytest.raises(
        ValueError, match=r"no text; a share of 0\.01 of the documents left none, raise it or name files"
    ):
        texts(Text(path=tmp_path, validation=0.01), "validation")
    with pytest.raises(ValueError, match="no train split to hold it out of"):
        texts(Text(files={"test": tmp_path / "a.txt"}), "validation")


def test_a_dataset_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"story": [f"story {i}" for i in range(200)] + [" "]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: datasets.DatasetDict({"train": rows}))
    monkeypatch.setattr(hub, "why_unreachable", lambda: None)
    source = Text(dataset="owner/stories", key="story", validation=0.2, test=0.0)
    assert sorted(texts(source, "train") + texts(source, "validation")) == sorted(f"story {i}" for i in range(200))
    assert source.fingerprint("train") == Text(
        dataset="owner/stories", key="story", validation=0.2, test=0.0
    ).fingerprint("train")
    with pytest.raises(ValueError, match="no column 'text'; it has story"):
        texts(Text(dataset="owner/stories"), "train")


def test_no_network_names_the_option_for_a_local_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: "no cable")
    with pytest.raises(hub.HubUnreachable, match=r"dataset loopkit-tests/absent .*no cable.*set data\.source\.path"):
        texts(Text(dataset="loopkit-tests/absent"), "train")


def test_a_dataset_at_a_commit_needs_no_hub_for_its_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: pytest.fail("the hub was asked"))
    assert Text(dataset="a/b", revision="0" * 40).fingerprint("train") != Text(
        dataset="a/b", revision="1" * 40
    ).fingerprint("train")
