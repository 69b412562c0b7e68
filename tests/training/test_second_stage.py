"""A run that starts from another one (``train.start_from``): what carries over, and what starts anew."""

from __future__ import annotations

import io
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor

from loopkit.components.tokenizer import load_tokenizer
from loopkit.errors import UserError
from loopkit.report import write_report
from loopkit.runs import CheckpointProblem, RunFolder, read_provenance
from loopkit.runs.checkpoint import EMA, OPTIMIZER, TOKENIZER, WEIGHTS
from loopkit.training.display.progress import Display
from loopkit.training.errors import Interrupted
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit, lines
from tests.training.test_exact import stop_at

STILL = ("evaluate.tasks.perplexity=false", "train.ema={decay: 0.5, start: 1}")
REGEX = "data.tokenizer={type: regex, max_size: 40, fit_on: [train]}"
STATE = "train.start_optimizer=true"

Second = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="module")
def first(recipe: Maker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a first stage with a fitted vocabulary and an average. Tests must not change it."""
    return fit(recipe(*STILL, REGEX, "train.steps=4"), tmp_path_factory.mktemp("stages") / "first").folder.path


@pytest.fixture(scope="module")
def second(first: Path) -> Second:
    """Overrides of a second stage: other text, which has other words, and a rate that rises again."""
    texts = first.parent / "other"
    texts.mkdir()
    for split in ("train", "validation"):
        (texts / f"{split}.txt").write_text(
            "\n\n".join(f"Entirely different sentences, number {n}." for n in range(60))
        )

    def overrides(*more: str) -> tuple[str, ...]:
        data = (f"data.source.path={texts}", "train.lr={type: cosine, peak: 4e-3, warmup: 4}", "train.steps=6")
        return (*STILL, REGEX, *data, f"train.start_from={first}", *more)

    return overrides


def saved(folder: Path, step: int, name: str) -> dict[str, Tensor]:
    return load_file(RunFolder(folder).checkpoint(step) / name)


def assert_equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value.equal(two[name]), name


@pytest.mark.parametrize(("weights", "name"), [("trained", WEIGHTS), ("ema", EMA)])
def test_weights_carry_over_and_steps_start_anew(
    recipe: Maker, first: Path, second: Second, tmp_path: Path, weights: str, name: str
) -> None:
    run = tmp_path / "second"
    fit(recipe(*second(f"train.start_weights={weights}")), run)
    for file in (WEIGHTS, EMA):  # the average starts anew, from the weights
        assert_equal(saved(run, 0, file), saved(first, 4, name))
    assert not saved(run, 0, OPTIMIZER)
    records = lines(run)
    assert [line["step"] for line in records] == [1, 2, 3, 4, 5, 6]
    assert [line["lr"] for line in records[:4]] == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3])
    assert records[0]["tokens"] == 8 * 16
    start = read_provenance(RunFolder(run).provenance)["start"]
    assert start == {"file": str(RunFolder(first).checkpoint(4) / name), "weights": weights, "step": 4}
    write_report(RunFolder(run))
    assert f"({weights} weights)" in RunFolder(run).report.read_text()


@pytest.mark.parametrize("stage", [0, 2])
def test_optimizer_state_carries_over_on_request(
    recipe: Maker, first: Path, second: Second, tmp_path: Path, stage: int
) -> None:
    zero = f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}"
    fit(recipe(*second(STATE, zero)), tmp_path / "second")
    assert_equal(saved(tmp_path / "second", 0, OPTIMIZER), saved(first, 4, OPTIMIZER))
    counters = {
        value.item() for key, value in saved(tmp_path / "second", 6, OPTIMIZER).items() if key.endswith("/step")
    }
    assert counters == {4 + 6}


def test_fitted_vocabulary_carries_over(recipe: Maker, first: Path, second: Second, tmp_path: Path) -> None:
    """The new text has other words, and its own vocabulary would give other meanings to the rows of the embedding."""
    fit(recipe(*second("train.steps=1")), tmp_path / "second")
    fit(recipe(*second("train.steps=1", "train.start_from=null")), tmp_path / "alone")
    folders = (first, tmp_path / "second", tmp_path / "alone")
    one, two, other = (load_tokenizer(newest(folder) / TOKENIZER) for folder in folders)
    assert one.fingerprint() == two.fingerprint() != other.fingerprint()


def newest(folder: Path) -> Path:
    return max(RunFolder(folder).checkpoints.glob("step-*"))


def test_tokens_of_another_tokenizer_cause_a_warning(recipe: Maker, first: Path, tmp_path: Path) -> None:
    fit(recipe(*STILL, "data.tokenizer={type: numbers, size: 259}", *numbers(tmp_path)), tmp_path / "numbers")
    shown = io.StringIO()
    start = f"train.start_from={tmp_path / 'numbers'}"
    fit(recipe(*STILL, "train.steps=1", start), tmp_path / "bytes", console=Console(file=shown, width=400))
    assert "warning: data.tokenizer: 259 tokens differ from those of" in shown.getvalue()
    assert "token 0 is '0' there and '\\x00' here" in shown.getvalue()


def numbers(folder: Path) -> tuple[str, ...]:
    (folder / "digits").mkdir()
    for split in ("train", "validation"):
        (folder / "digits" / f"{split}.txt").write_text(" ".join(str(n % 200) for n in range(400)))
    return f"data.source.path={folder / 'digits'}", "train.steps=1"


def test_second_stage_resumes_without_the_first(
    recipe: Maker, first: Path, second: Second, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(first, tmp_path / "first")
    make = recipe(*second(STATE, f"train.start_from={tmp_path / 'first'}"))
    fit(make, tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_at(patched, Display, "log", 3, signal.SIGTERM)
        with pytest.raises(Interrupted):
            fit(make, tmp_path / "halves")
    shutil.rmtree(tmp_path / "first")
    fit(make, tmp_path / "halves", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "halves", 6)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((STATE, "train.optimizer.weight_decay=0.5"), r"train\.optimizer\.weight_decay: 0\.01 there, 0\.5 here"),
        ((STATE, "train.optimizer=muon"), r"differs:\n  train\.optimizer: "),
        ((STATE, 'train.trainable=["core.*"]'), "does not match the trained parameters"),
    ],
)
def test_state_of_another_optimizer_is_refused(
    recipe: Maker, second: Second, tmp_path: Path, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fit(recipe(*second(*overrides)), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_what_the_start_lacks_is_refused_before_reading_data(
    recipe: Maker, first: Path, finished_run: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file(saved(first, 4, WEIGHTS), weights)
    nowhere = f"data.source.path={tmp_path / 'nowhere'}"
    for start, setting, error, message in (
        (finished_run, "train.start_weights=ema", CheckpointProblem, "contains no averaged weights"),
        (weights, "train.start_weights=ema", UserError, r"train\.start_weights: .* is not part of a checkpoint"),
        (weights, STATE, UserError, r"train\.start_optimizer: .* is not part of a checkpoint"),
    ):
        with pytest.raises(error, match=message):
            fit(recipe(nowhere, f"train.start_from={start}", setting), tmp_path / "run")
    assert not (tmp_path / "run").exists()
