"""From a data section to encoded splits, once, on toy and on real text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopkit.components.source import DataWarning
from loopkit.components.tokenizer import load_tokenizer
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tokenizer.characters import Characters
from loopkit.components.tokenizer.regex import Regex
from loopkit.data import prepare
from loopkit.errors import UserError
from loopkit.recipe import component
from loopkit.recipe.format import DataConfig as DataSection
from tests.data.toys import Lines, Sums, ToyData, ToySpec

TEXTS = {"train": ["abab", "c"], "validation": ["abz"]}


def toy(tokenizer: Any = None, join: str | None = None, texts: dict[str, list[str]] = TEXTS) -> Any:
    tokenizer = Characters() if tokenizer is None else tokenizer
    return ToyData(ToySpec(Lines(texts, join)), ToySpec(tokenizer))


def real(source: dict[str, Any], tokenizer: Any) -> DataSection:
    return DataSection(source=component("source", source), tokenizer=component("tokenizer", tokenizer))


def test_splits_are_encoded_and_reported(tmp_path: Path) -> None:
    prepared = prepare(toy(join="\n"), cache=tmp_path)
    train, validation = (prepared.splits[name] for name in ("train", "validation"))
    ids = train.store.read(0, len(train.store)).tolist()
    assert prepared.tokenizer.decode(ids) == "abab\nc"
    assert train.report.tokens == train.report.characters == 6
    assert (train.report.documents, train.report.unknown_tokens) == (2, 0)
    assert prepared.report["validation"]["unknown_rate"] == pytest.approx(1 / 3)
    assert prepared.report["validation"]["lost_rate"] == pytest.approx(1 / 3)
    assert validation.report.fingerprint == repr(["abz"])


def test_vocabulary_is_fitted_on_fit_on(tmp_path: Path) -> None:
    assert "z" not in prepare(toy(), cache=tmp_path).tokenizer.tokens  # type: ignore[attr-defined]
    both = prepare(toy(Characters(fit_on=("train", "valid"))), cache=tmp_path / "other")
    assert "z" in both.tokenizer.tokens  # type: ignore[attr-defined]


def test_cache_is_reused(tmp_path: Path) -> None:
    first, second = toy(), toy()
    prepare(first, cache=tmp_path)
    assert first.source.built.reads == 3  # to fit, and to encode two splits
    result = prepare(second, cache=tmp_path)
    assert second.source.built.reads == 0
    assert result.report == prepare(first, cache=tmp_path).report


@pytest.mark.parametrize(
    "changed",
    [
        toy(join=" "),
        toy(Characters(fit_on=("train", "validation"))),
        toy(Bytes()),
        toy(texts={"train": ["abab", "d"], "validation": ["abz"]}),
    ],
    ids=["join", "vocabulary", "tokenizer", "text"],
)
def test_changed_inputs_are_encoded_again(tmp_path: Path, changed: Any) -> None:
    prepare(toy(), cache=tmp_path)
    before = len(list((tmp_path / "tokens").iterdir()))
    prepare(changed, cache=tmp_path, splits=["train"])
    assert len(list((tmp_path / "tokens").iterdir())) > before


@pytest.mark.parametrize("what", ["source options", "source code", "tokenizer code"])
def test_cache_key_covers_options_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A source whose fingerprint leaves something out is encoded anew all the same."""
    first, second = toy(), toy()
    prepare(first, cache=tmp_path, splits=["train"])
    if what == "source options":
        second.source.built.option = 2
        monkeypatch.setattr(ToySpec, "options", property(lambda self: {"option": getattr(self.built, "option", 1)}))
    else:
        changed = Lines if what == "source code" else Characters
        monkeypatch.setattr("loopkit.data.encoding.encode.code_version", lambda cls: f"new {cls is changed}")
    prepare(second, cache=tmp_path, splits=["train"])
    assert second.source.built.reads == 2


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ""])
def test_cache_key_covers_the_suffix(tmp_path: Path, suffix: str) -> None:
    """The cache never serves the tokens of another reader."""
    content = '{"text": "one two"}\n'
    counts = []
    for name in ("a.jsonl", f"b{suffix}"):
        (tmp_path / name).write_text(content)
        options = {"type": "text", "path": str(tmp_path / name), "validation": 0, "test": 0}
        if suffix != ".jsonl" and name.startswith("b"):
            options["format"] = "text"
        result = prepare(real(options, "bytes"), cache=tmp_path / "cache", splits=["train"])
        counts.append(result.splits["train"].report.tokens)
    assert counts == [7, 7 if suffix == ".jsonl" else len(content) - 1]


def test_cache_key_ignores_paths(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.txt").write_text("one one\n\ntwo")
        options = {"type": "text", "path": str(tmp_path / name), "validation": 0, "test": 0}
        prepare(real(options, "regex"), cache=tmp_path / "cache", splits=["train"])
    assert len([folder for folder in (tmp_path / "cache" / "tokens").iterdir() if folder.is_dir()]) == 1


def test_half_a_surrogate_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"source toy: document train:1 has \\ud800 at character 3"):
        prepare(toy(Bytes(), texts={"train": ["a", "bc\ud800"]}), cache=tmp_path, splits=["train"])


def test_vocabulary_is_fitted_on_joins(tmp_path: Path) -> None:
    """The vocabulary includes joins between documents, unless fit_joins is false."""
    texts = {"train": ["one two one two"] * 3}
    unknown = {}
    for fit_joins in (True, False):
        tokenizer = Regex(min_count=2, fit_joins=fit_joins)
        prepared = prepare(toy(tokenizer, "\n\n", texts), cache=tmp_path / str(fit_joins), splits=["train"])
        unknown[fit_joins] = prepared.splits["train"].report.unknown_tokens
    assert unknown == {True: 0, False: 2}


@pytest.mark.filterwarnings("ignore::loopkit.components.source.DataWarning")
def test_damaged_cache_is_repaired(tmp_path: Path) -> None:
    expected = prepare(toy(), cache=tmp_path).splits["train"].store.read(0, 5)
    for file in (tmp_path / "tokens").glob("*/tokens-00000.bin"):
        file.write_bytes(bytes(len(file.read_bytes())))
    with pytest.warns(DataWarning, match=r"the cached (train|validation) split in .* is damaged"):
        again = prepare(toy(), cache=tmp_path)
    np.testing.assert_array_equal(again.splits["train"].store.read(0, 5), expected)


def test_trained_tokenizer_is_used_unchanged(tmp_path: Path) -> None:
    trained = Characters()
    trained.fit(["zyx"])
    data = toy()
    prepared = prepare(data, cache=tmp_path, splits=["valid"], tokenizer=trained)
    assert prepared.tokenizer is trained
    assert list(prepared.splits) == ["validation"]
    assert data.source.built.reads == 1


def test_examples_layout(tmp_path: Path) -> None:
    source = Sums({"train": ["1+1=2", "2+2=4"], "validation": ["3+3=6"]})
    prepared = prepare(ToyData(ToySpec(source), ToySpec(Bytes())), cache=tmp_path)  # type: ignore[arg-type]
    examples = prepared.splits["train"].examples(16)
    assert len(examples) == 2
    assert examples.batch([1]).labels.tolist() == [[-100, -100, -100, ord("4")]]
    scoring = prepared.splits["validation"].scoring(16)
    assert (scoring.tokens_scored, scoring.bytes) == (1, 1)


@pytest.mark.parametrize(
    ("source", "words", "meaning"),
    [
        ({"type": "text", "path": "FILE", "validation": 0, "test": 0}, 4, "runs of characters between blanks"),
        ({"type": "text", "path": "FILE", "validation": 0, "test": 0, "unit": "line"}, 4, "runs of characters"),
        ({"type": "wikitext", "path": "FOLDER", "variant": "2-raw"}, 4 + 3, "and one end of line for each line"),
        ({"type": "addition", "train": 100, "validation": 5, "test": 5}, None, None),
    ],
)
def test_source_defines_words(tmp_path: Path, source: dict[str, Any], words: int | None, meaning: str | None) -> None:
    """What counts as a word is the source's to say; answers have none."""
    file = tmp_path / "wiki.train.raw"
    file.write_text("one two\n\nthree four\n")
    source = {key: {"FILE": str(file), "FOLDER": str(tmp_path)}.get(value, value) for key, value in source.items()}
    split = prepare(real(source, "bytes"), cache=tmp_path / "cache", splits=["train"]).splits["train"]
    scoring = split.scoring(64)
    assert split.report.words == scoring.words == words
    assert (meaning is None) == (scoring.words_are is None)
    assert meaning is None or meaning in scoring.words_are  # type: ignore[operator]
    assert ("words" in scoring.statement) == (words is not None)


def test_progress_is_reported(tmp_path: Path) -> None:
    outputs: list[tuple[str, int]] = []
    prepare(toy(), cache=tmp_path, progress=lambda what, done: outputs.append((what, done)))
    assert ("encoding train", 5) in outputs
    assert ("encoding validation", 3) in outputs


def test_split_without_tokens_is_an_error(tmp_path: Path) -> None:
    texts = {"train": ["ab"], "validation": [""]}
    with pytest.raises(ValueError, match="validation split of source toy has no tokens"):
        prepare(toy(texts=texts), cache=tmp_path)
    nothing = toy(Regex(min_count=1, unmatched="drop"), texts={"train": ["ab"], "validation": ["éé"]})
    with pytest.raises(ValueError, match="has no tokens"):
        prepare(nothing, cache=tmp_path)


def test_two_processes_encode_once(tmp_path: Path) -> None:
    """Both read the same tokens, and each split and the vocabulary is built once."""
    code = """
import pathlib, sys, time
import loopkit.data.encoding.encode as encode
from loopkit.data import prepare
from loopkit.recipe import component
from loopkit.recipe.format import DataConfig
root, who = pathlib.Path(sys.argv[1]), sys.argv[2]
real = encode.write_store
def counted(*args, **kwargs):
    print("encoded")
    return real(*args, **kwargs)
encode.write_store = counted
data = DataConfig(source=component("source", "python_docs"), tokenizer=component("tokenizer", "regex"))
(root / f"ready-{who}").touch()
while len(list(root.glob("ready-*"))) < 2:
    time.sleep(0.002)
found = prepare(data, cache=root / "cache")
store = found.splits["train"].store
print(found.tokenizer.fingerprint(), len(store), int(store.read(0, len(store)).sum()))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True) for who in "ab"]
    outputs = [process.communicate(timeout=120)[0].split("\n") for process in running]
    assert [process.returncode for process in running] == [0, 0]
    results = [[line for line in lines if line and line != "encoded"] for lines in outputs]
    assert results[0] == results[1]
    assert len(results[0]) == 1
    assert sum(lines.count("encoded") for lines in outputs) == 2  # train and validation, by one process or the other


def test_python_docs_with_regex(tmp_path: Path) -> None:
    prepared = prepare(real({"type": "python_docs"}, "regex"), cache=tmp_path)
    train = prepared.splits["train"]
    assert train.report.tokens > 80_000
    assert train.report.dropped == 0
    batch = train.examples(128).batch([0, 5])
    assert batch.tokens.shape == (2, 128)
    prepared.tokenizer.save(tmp_path / "run")
    assert load_tokenizer(tmp_path / "run").fingerprint() == prepared.tokenizer.fingerprint()


PAPER = {
    "type": "regex",
    "max_size": 20000,
    "min_count": 2,
    "fit_on": ["train", "validation"],
    "fit_joins": False,
    "unmatched": "drop",
}


@pytest.mark.filterwarnings("ignore::loopkit.components.source.DataWarning")
def test_word_level_wikitext_as_raw_variant(shared: Path, tmp_path: Path) -> None:
    """The paper's recipe works on word-level text, with a warning."""
    source = {"type": "wikitext", "variant": "103-raw", "path": str(shared / "data/wikitext-2")}
    recipe = real(source | {"join": "\n\n", "drop_empty": True}, PAPER)
    with pytest.warns(DataWarning, match="the train split in .*wikitext-2 contains <unk>"):
        prepared = prepare(recipe, cache=tmp_path)
    assert prepared.tokenizer.size == 20_000
    report = prepared.splits["train"].report
    assert report.words == 2_088_628
    assert report.tokens == 4_283_581
    assert 0 < report.dropped < 5000
    assert 0.01 < report.unknown_rate < 0.03
    scoring = prepared.splits["validation"].scoring(256)
    assert scoring.words == 217_646
    assert scoring.tokens_scored == prepared.splits["validation"].report.tokens - 1
    part = prepared.splits["validation"].scoring(256, max_tokens=20_000)
    assert 19_800 < part.tokens_scored < 20_000


@pytest.mark.parametrize("tokenizer", ["bytes", "characters"])
def test_raw_wikitext_counts(shared: Path, tmp_path: Path, tokenizer: str) -> None:
    source = {"type": "wikitext", "variant": "2-raw", "path": str(shared / "data/wikitext-2-raw")}
    options = {"type": tokenizer} | ({"fit_on": ["validation"]} if tokenizer == "characters" else {})
    prepared = prepare(real(source, options), cache=tmp_path, splits=["validation", "test"])
    sizes = {name: (shared / f"data/wikitext-2-raw/wiki.{name}.raw").stat().st_size for name in ("valid", "test")}
    assert prepared.splits["validation"].scoring(256).bytes == sizes["valid"]
    assert prepared.splits["test"].scoring(256).bytes == sizes["test"]
    assert prepared.splits["validation"].scoring(256).words == 217_646
    assert prepared.splits["test"].scoring(256, stride=64).words == 245_569
    with pytest.raises(UserError, match="no train split"):
        prepare(real(source, options), cache=tmp_path, splits=["train"])
