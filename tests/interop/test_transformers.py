"""Exported folders in transformers, in a process that cannot import loopkit; `pip install 'loopkit[hf]'` enables it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import loopkit
from loopkit.inference.generate import generate
from loopkit.interop import export_run
from loopkit.interop.architectures import forms
from loopkit.interop.importing import plain_model
from loopkit.loop import IGNORE, Batch, Loops
from loopkit.recipe import load_recipe
from tests.interop import transformers_process as process
from tests.training.runs import fit

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.e2e

QUICK = ("wikitext_44m_alpha", "huginn_3b5")
SLOW = (
    *("wikitext_44m_raw", "wikitext_44m_norm", "wikitext_44m_final_only", "wikitext_44m_carry_norm"),
    *("wikitext_44m_damping", "parcae_small", "ouro_scratch", "retrofit_tinyllama", "addition_stars", "nanbeige_mini"),
)


def record(run: Path, path: Path) -> None:
    """Write the numbers of a run that the exported folder must reproduce."""
    model, _, recipe = loopkit.load(run)
    model.eval()
    length = recipe.data.length
    x = torch.randint(model.vocabulary, (3, min(10, length)), generator=torch.Generator().manual_seed(0))
    labels = torch.full_like(x, IGNORE)
    labels[:, :-1] = x[:, 1:]
    batch = Batch.of(x, labels, sample=torch.zeros(3, dtype=torch.int64))
    result = {"x": x}
    for depth in process.DEPTHS:
        with torch.no_grad():
            result[f"logits/{depth}"] = model.run(batch, Loops.fixed(depth)).logits(depth)
    prompts = [row[:n].tolist() for row, n in zip(x, process.PROMPTS, strict=True)]
    for depth in process.GENERATED:
        made = generate(model, prompts, depth=depth, max_tokens=min(12, length - max(process.PROMPTS)))
        result[f"generated/{depth}"] = torch.tensor([generated.tokens for generated in made])
    depth = process.LOSS_DEPTH
    loss = model.run(batch, Loops.fixed(depth)).nll([depth]).sum() / batch.num_scored
    loss.backward()
    result["loss"] = loss.detach()
    weights = forms()["loopkit"].weight_map(plain_model(recipe, model), length=length, max_loops=model.max_loops)
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for group in weights.groups:
        if (grad := grads.get(group.native[0])) is not None:
            result[f"grad/{group.published[0][0]}"] = grad
    save_file(result, path)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_transformers_reproduces_loopkit(name: str, root: Path, tmp_path: Path) -> None:
    overrides = ["train.steps=2", "evaluate.every=null", "train.device=cpu"]
    fit(load_recipe(root / "recipes" / f"{name}.yaml", ["smoke"], overrides), tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "out").form == "loopkit"
    record(tmp_path / "run", tmp_path / "reference.safetensors")
    files = (process.__file__, tmp_path / "out", tmp_path / "reference.safetensors")
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *map(str, files)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_trainer_fine_tunes_a_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    overrides = ["train.steps=1", "evaluate.every=null", "train.device=cpu"]
    fit(load_recipe(root / "recipes" / "nanbeige_mini.yaml", ["smoke"], overrides), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=True)
    ids = tokenizer("def main(): return 0")["input_ids"]
    assert ids == list(b"def main(): return 0")
    data: Any = [{"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)}] * 8
    options = {"max_steps": 5, "per_device_train_batch_size": 2, "learning_rate": 1e-2, "logging_steps": 1}
    arguments = transformers.TrainingArguments(str(tmp_path / "tuned"), report_to=[], use_cpu=True, **options)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 5
    assert float(losses[-1]) < float(losses[0])
