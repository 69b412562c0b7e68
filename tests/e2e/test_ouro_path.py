"""The whole way of a published model: in, fine-tuned with STARS, asked mathematics at several depths, out, in again."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import loopkit
from loopkit.loop import Batch, Loops
from tests.e2e import documented
from tests.interop.folders import CONFIG, WIDTH, tensors, write

pytestmark = pytest.mark.e2e

VOCABULARY = 49_152
DEPTHS = (2, 4, 8)


def run(place: Path, *words: str) -> str:
    return documented.run_here(shlex.join(["loopkit", *words]), place)


@pytest.fixture
def published(tmp_path: Path, shared: Path) -> Path:
    """A random tiny Ouro with the tokenizer of its family."""
    weights = tensors(torch.float32)
    generator = torch.Generator().manual_seed(2)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.randn(VOCABULARY, WIDTH, generator=generator) * 0.1
    config = {"dtype": "float32", "vocab_size": VOCABULARY, "max_position_embeddings": 1024}
    folder = write(tmp_path / "published", weights, shards=2, **config)
    shutil.copy(shared / "data" / "smollm2-tokenizer" / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}')
    return folder


@pytest.mark.slow  # each step alone: the guides on exporting and on mathematics
def test_import_fine_tune_evaluate_export_and_reload(tmp_path: Path, shared: Path, published: Path) -> None:
    data = shared / "data"
    run(tmp_path, "import", str(published), "--out", "runs/tiny")

    rows = data / "gsm8k" / "train.jsonl"
    problems = f"{{path: {rows}, problem: question, solution: answer, dataset: null, sample: null}}"
    overrides = {
        "data.source": problems,
        "data.tokenizer": f"{{name: null, path: {published / 'tokenizer.json'}}}",
        "data.length": "256",
        "model.width": str(WIDTH),
        "model.block.attention": "{type: causal, heads: 4, kv_heads: 2}",
        "model.block.mlp.hidden": str(CONFIG["intermediate_size"]),
        "model.core": str(CONFIG["num_hidden_layers"]),
        "train.start_from": "runs/tiny",
        "train.steps": "30",
        "train.batch": "4",
        "train.micro_batch": "2",
        "train.lr": "{type: wsd, peak: 1e-2, warmup: 0.1, cooldown: 0.1}",
        "train.precision": "fp32",
        "train.device": "cpu",
        "evaluate.max_tokens": "2000",
    }
    sets = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    run(tmp_path, "train", "ouro_1b4_stars", *sets, "--name", "tuned")
    lines = [json.loads(line) for line in (tmp_path / "runs/tuned/metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 30
    assert all(line["regularizers"]["jsrr"] > 0 for line in lines)
    assert len({line["loops"] for line in lines}) > 2
    first, last = (sum(line["ce"][-1] for line in part) / 5 for part in (lines[:5], lines[-5:]))
    assert last < first - 0.5  # from about ln 49152

    tasks: list[str] = []
    files = {"gsm8k": "gsm8k/test.jsonl", "svamp": "svamp/SVAMP.json", "math500": "math500"}
    for name, file in files.items():
        path = data / file if (data / file).is_file() else next((data / file).glob("*.jsonl"))
        options = {"dataset": name, "path": path, "limit": 20, "max_tokens": 12}
        tasks += ["--task", f"{name}=math"]
        tasks += [w for key, value in options.items() for w in ("--set", f"evaluate.tasks.{name}.{key}={value}")]
    words = ["eval", "tuned", "--depths", ",".join(map(str, DEPTHS)), *tasks, "--json"]
    result: dict[str, Any] = json.loads(run(tmp_path, *words))
    assert [row["depth"] for row in result["depths"]] == list(DEPTHS)
    for row in result["depths"]:
        for name in files:
            assert 0 <= row[name]["accuracy"] <= 1
            assert 0 <= row[name]["unfinished"] <= 1
    (completions,) = (tmp_path / "runs/tuned/eval").glob("*completions.jsonl")
    assert len(completions.read_text().splitlines()) == 20 * len(files) * len(DEPTHS)

    run(tmp_path, "export", "tuned", "--to", "hf", "--out", "given_back")
    names = {file.name for file in (tmp_path / "given_back").iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= names
    run(tmp_path, "import", "given_back", "--out", "runs/again")
    tokens = torch.arange(40, 60)[None]
    outputs = []
    for name in ("tuned", "again", "tiny"):
        model, _, _ = loopkit.load(tmp_path / "runs" / name)
        with torch.no_grad():
            t = model.run(Batch.of(tokens), Loops.fixed(8))
            outputs.append(torch.stack([t.logits(k, at=k) for k in DEPTHS]))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2], atol=0.1)
