"""The model of lm-eval: its likelihoods, texts and result file, and its perplexity against ``loopkit eval``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

pytest.importorskip("lm_eval", reason="models are evaluated with lm-eval: install loopkit[lm-eval]")

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from loopkit import generate
from loopkit.cli import main
from loopkit.errors import UserError
from loopkit.evaluation.trained_run import open_run
from loopkit.interop.lm_eval.model import LoopedLM
from loopkit.loop import Batch, Loops
from loopkit.recipe import load_recipe
from tests.training.conftest import RECIPE, TEXT
from tests.training.runs import fit

TASK = """
task: local_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""
CHOICE = """
task: local_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: label
doc_to_choice: options
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def train(folder: Path, text: str) -> Path:
    """Train one step on a text, whole documents of which are its files."""
    (folder / "texts").mkdir()
    for split in ("train", "validation"):
        (folder / "texts" / f"{split}.txt").write_text(text, encoding="utf-8")
    (folder / "tiny.yaml").write_text(RECIPE)
    settings = ["model.position=rope", "train.steps=1", "data.source.unit=file", "evaluate.tasks.perplexity=false"]
    return fit(load_recipe(folder / "tiny.yaml", (), settings), folder / "runs" / "tiny").folder.path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("lm_eval"), TEXT)


@pytest.fixture
def make(run: Path) -> Callable[..., LoopedLM]:
    return lambda **options: LoopedLM(**({"pretrained": str(run), "device": "cpu"} | options))


def request(*args: Any) -> Any:
    return SimpleNamespace(args=args)


def lm_eval(folder: Path, model_args: str, task: str, *words: str) -> Result:
    """Run ``loopkit lm-eval`` in this process."""
    arguments = ["--model_args", model_args, "--tasks", task, "--include_path", str(folder), "--device", "cpu"]
    return CliRunner().invoke(main, ["lm-eval", *arguments, "--output_path", str(folder / "results"), *words])


def result_of(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "results").rglob("results_*.json")
    return json.loads(path.read_text())


PAIRS = [
    ("The 1th line of", " a short"),
    ("The", " 3th line of a short text says 9, then 27."),
    ("The 11th line of a short text says ", "121"),
    ("", "A line"),
]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_likelihoods_equal_separate_passes(
    make: Callable[..., LoopedLM], run: Path, depth: int, batch_size: Any
) -> None:
    model = make(depth=depth, batch_size=batch_size, max_length=64)
    results = model.loglikelihood([request(*pair) for pair in PAIRS], disable_tqdm=True)
    opened = open_run(run)
    for (prompt, text), (value, is_greedy) in zip(PAIRS, results, strict=True):
        ids = [*((prompt + text).encode() if prompt else [257, *text.encode()])]
        first = len(prompt.rstrip().encode()) or 1
        tokens = torch.tensor([ids])
        with torch.no_grad():
            logits = opened.model.run(Batch.of(tokens[:, :-1].contiguous()), Loops.fixed(depth)).logits(depth)[0]
        log_p = logits[first - 1 :].double().log_softmax(-1)
        assert value == pytest.approx(log_p.gather(1, tokens[0, first:, None]).sum().item(), rel=1e-6)
        assert is_greedy == bool((log_p.argmax(-1) == tokens[0, first:]).all())


def test_greedy_continuation_is_greedy(make: Callable[..., LoopedLM], run: Path) -> None:
    prompt = "The 3th line of"
    (completion,) = generate(prompt, run, depth=2, max_tokens=3)
    ids = open_run(run).tokenizer.encode([completion.text])[0]
    assert len(ids) == 3, "the completion must not contain bytes that do not decode"
    (result,) = make(depth=2, max_length=64).loglikelihood([request(prompt, completion.text)], disable_tqdm=True)
    assert result[1] is True


def test_exit_at_a_depth_equals_that_depth(make: Callable[..., LoopedLM]) -> None:
    requests = [request(*pair) for pair in PAIRS]
    fixed = make(depth=2, max_length=64).loglikelihood(requests, disable_tqdm=True)
    model = make(depth=4, exit="entropy", threshold=-1e9, max_length=64, batch_size=2)
    first = model.loglikelihood(requests, disable_tqdm=True)
    assert model.get_model_info()["mean_depth"] == 1.0
    one = make(depth=1, max_length=64).loglikelihood(requests, disable_tqdm=True)
    assert [value for value, _ in first] == pytest.approx([value for value, _ in one], rel=1e-5)
    last = make(depth=2, exit="entropy", threshold=0.0, max_length=64)
    assert [value for value, _ in last.loglikelihood(requests, disable_tqdm=True)] == pytest.approx(
        [value for value, _ in fixed], rel=1e-5
    )
    assert last.get_model_info() | {"exit": "entropy", "threshold": 0.0, "mean_depth": 2.0} == last.get_model_info()


def test_texts_equal_those_of_loopkit_generate(make: Callable[..., LoopedLM], run: Path) -> None:
    prompts = ["The 3th line", "A", "The 11th line of a short text says", "text says"]
    settings = [{"until": ["."], "max_gen_toks": 9}, {"until": [], "max_gen_toks": 4, "do_sample": False}]
    requests = [request(prompt, settings[i % 2]) for i, prompt in enumerate(prompts)]
    texts = make(depth=3, batch_size=2).generate_until(requests, disable_tqdm=True)
    for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        options: dict[str, Any] = {"max_tokens": 9, "stop": ["."]} if i % 2 == 0 else {"max_tokens": 4}
        assert generate(prompt, run, depth=3, **options)[0].text == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pretrained": None}, "no run; add pretrained="),
        ({"depth": 0}, "depths start at 1"),
        ({"exit": "entropi"}, "entropy"),
        ({"threshold": 1.0}, "threshold applies only to an early exit"),
        ({"dtype": "fp8"}, "dtype 'fp8' does not exist; fp32, bf16_autocast do"),
        ({"pretrained": "missing"}, "missing"),
        ({"batch_size": "many"}, "batch_size must be a positive number or auto, not 'many'"),
    ],
)
def test_wrong_argument_is_a_user_error(make: Callable[..., LoopedLM], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**options)


def test_misspelt_argument_is_one_message(run: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "one two"}))
    (tmp_path / "task.yaml").write_text(TASK.format(file=tmp_path / "rows.jsonl"))
    done = lm_eval(tmp_path, f"pretrained={run},deph=2", "local_text")
    assert done.exit_code == 2, done.output
    assert "no argument is called 'deph'; did you mean 'depth'?" in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "results").exists()


def test_exit_of_generation_is_refused(make: Callable[..., LoopedLM]) -> None:
    with pytest.raises(UserError, match="exit applies to likelihoods"):
        make(exit="entropy").generate_until([request("a", {"until": []})], disable_tqdm=True)
    with pytest.raises(UserError, match="generation setting 'num_beams' of the task is not supported"):
        make().generate_until([request("a", {"until": [], "num_beams": 3})], disable_tqdm=True)


def test_accuracy_equals_task_choice(run: Path, tmp_path: Path) -> None:
    """lm-eval's acc and acc_norm on a local task are those of ``loopkit eval`` on the same file."""
    rows = [
        {"question": f"The {n}th line of a", "options": ["short text", "says", str(n * n)], "label": n % 3}
        for n in range(12)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "task.yaml").write_text(CHOICE.format(file=file))
    done = lm_eval(tmp_path, f"pretrained={run},depth=3", "local_choice", "--batch_size", "5")
    assert done.exit_code == 0, done.output
    words = ["eval", str(run), "--task", "choice", "-s", f"evaluate.tasks.choice.path={file}", "--depths", "3"]
    own = json.loads(CliRunner().invoke(main, [*words, "--no-write", "--json"]).stdout)["depths"][0]["choice"]
    result = result_of(tmp_path)
    assert result["results"]["local_choice"]["acc,none"] == own["accuracy"]
    assert result["results"]["local_choice"]["acc_norm,none"] == own["normalised_accuracy"]
    config = result["config"]
    assert {name: config[name] for name in ("run", "depth", "checkpoint", "model")} == {
        "run": "tiny",
        "depth": 3,
        "checkpoint": "step-00000001",
        "model": "loopkit",
    }


def test_perplexity_of_wikitext_equals_loopkit_eval(shared: Path, tmp_path: Path) -> None:
    text = (shared / "data" / "wikitext-2-raw" / "wiki.valid.raw").read_text(encoding="utf-8")[:30_000].strip()
    run = train(tmp_path, text)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": text}))
    (tmp_path / "task.yaml").write_text(TASK.format(file=tmp_path / "rows.jsonl"))
    local = TaskManager(include_path=str(tmp_path), include_defaults=False)
    words = ["eval", str(run), "--task", "perplexity", "--depths", "3", "--batch", "64", "--no-write", "--json"]
    own = json.loads(CliRunner().invoke(main, words).stdout)
    model = LoopedLM(str(run), depth=3, batch_size=64, device="cpu")
    result = simple_evaluate(model, tasks=["local_text"], task_manager=local)["results"]["local_text"]
    (row,) = own["depths"]
    expected = {
        "word_perplexity,none": row["word_ppl"],
        "byte_perplexity,none": math.exp(math.log(2) * row["bits_per_byte"]),
        "bits_per_byte,none": row["bits_per_byte"],
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected, rel=1e-6)
