"""End tokens of published folders, and buffers that follow from the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import Tensor

import loopkit
from loopkit.cli import main
from loopkit.inference.complete import StopCriteria
from loopkit.interop import export_run, import_folder
from loopkit.interop.published import PublishedError
from loopkit.runs import RunFolder
from tests.interop.folders import CONFIG, LAYERS, SIZE, assert_same_model, load_tensors, tensors, with_tokenizer, write

ROTARY = ("inv_freq", "cos_cached", "sin_cached")


def buffers(base: float = CONFIG["rope_theta"], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The rotary buffers of each layer, as older versions of the transformers library stored them."""
    frequency = 1.0 / base ** (torch.arange(0, SIZE, 2) / SIZE)
    angle = torch.outer(torch.arange(64.0), frequency).repeat(1, 2)[None, None]
    values = dict(zip(ROTARY, (frequency, angle.cos(), angle.sin()), strict=True))
    return {
        f"model.layers.{i}.self_attn.rotary_emb.{name}": value.to(dtype).clone()
        for i in range(LAYERS)
        for name, value in values.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_rotary_buffers_are_exported_unchanged(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", tensors() | buffers(dtype=dtype), shards=2)
    import_folder(folder, RunFolder(tmp_path / "run"))
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert_same_model(tmp_path / "out", folder)


def test_inconsistent_rotary_buffers_are_refused(tmp_path: Path) -> None:
    """A buffer that contradicts config.json belongs to another model."""
    folder = write(tmp_path / "ouro", tensors() | buffers(base=100.0))
    with pytest.raises(PublishedError, match=r"layers.0.self_attn.rotary_emb.inv_freq: its numbers are not those"):
        import_folder(folder, RunFolder(tmp_path / "run"))
    other = write(tmp_path / "shape", tensors() | {"model.rotary_emb.inv_freq": torch.ones(3)})
    with pytest.raises(PublishedError, match=r"rotary_emb.inv_freq: its shape is \[3\]; config.json implies \[2\]"):
        import_folder(other, RunFolder(tmp_path / "run"))


def test_buffers_follow_a_changed_base(tmp_path: Path) -> None:
    """A stored buffer of the old base has the right shape, and must not be exported."""
    import_folder(write(tmp_path / "ouro", tensors() | buffers()), RunFolder(tmp_path / "run"))
    config = tmp_path / "run" / "imported" / "folder" / "config.json"
    config.write_text(json.dumps(CONFIG | {"rope_theta": 100.0}))  # now the recipe's base differs from the folder's
    export_run(tmp_path / "run", tmp_path / "same")
    stored = load_tensors(tmp_path / "same")["model.layers.0.self_attn.rotary_emb.inv_freq"]
    assert torch.equal(stored, buffers()["model.layers.0.self_attn.rotary_emb.inv_freq"])
    tables = {name: value for name, value in buffers(base=100.0).items() if "inv_freq" in name}
    save_file(tables, tmp_path / "run" / "imported" / "tables.safetensors")
    export_run(tmp_path / "run", tmp_path / "out")
    exported = load_tensors(tmp_path / "out")["model.layers.0.self_attn.rotary_emb.inv_freq"]
    torch.testing.assert_close(exported, buffers()["model.layers.0.self_attn.rotary_emb.inv_freq"])


@pytest.mark.parametrize("place", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("stated", "eos", "ends"),
    [([1, 2], 97, {97, 1, 2}), ([97, 5], 97, {97, 5}), (97, 97, {97}), (3, 97, {97, 3}), (None, 97, {97})],
)
def test_every_stated_end_token_is_used(place: str, stated: object, eos: int, ends: set[int], tmp_path: Path) -> None:
    """The tokenizer's own end token stays the first; a single one needs no option in the recipe."""
    folder = with_tokenizer(write(tmp_path / "ouro"))
    config = json.loads((folder / place).read_text())
    (folder / place).write_text(json.dumps(config | {"eos_token_id": stated}))
    import_folder(folder, RunFolder(tmp_path / "run"))
    _, tokenizer, recipe = loopkit.load(tmp_path / "run")
    assert tokenizer.eos == eos
    assert StopCriteria(tokenizer).eos == ends
    assert (recipe.values["data"]["tokenizer"]["other_ends"] is None) == (len(ends) == 1)
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged


def test_end_tokens_without_a_tokenizer_or_outside_it(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "bare", eos_token_id=[7, 9]), RunFolder(tmp_path / "run"))
    _, tokenizer, _ = loopkit.load(tmp_path / "run")
    assert tokenizer.ends == (7, 9)
    folder = with_tokenizer(write(tmp_path / "ouro", eos_token_id=[97, 250]))
    result = import_folder(folder, RunFolder(tmp_path / "other"))
    assert "eos_token_id 250 is not a token of the tokenizer and is ignored" in result.notes
    with pytest.raises(PublishedError, match="eos_token_id is 'end'; it must be a token number or a list"):
        import_folder(write(tmp_path / "wrong", eos_token_id="end"), RunFolder(tmp_path / "none"))


def test_generate_stops_at_the_second_end_token(tmp_path: Path) -> None:
    """The greedy generation ends at the first stated token in it."""
    folder = write(tmp_path / "ouro")
    import_folder(folder, RunFolder(tmp_path / "free"))
    tokens = [int(word) for word in _generated(tmp_path / "free").split()]
    stop = tokens[2]
    (folder / "config.json").write_text(json.dumps(CONFIG | {"eos_token_id": [299, stop]}))
    import_folder(folder, RunFolder(tmp_path / "ended"))
    assert [int(word) for word in _generated(tmp_path / "ended").split()] == tokens[: tokens.index(stop)]


def _generated(run: Path) -> str:
    command = ["generate", str(run), "--prompt", "17 4 44", "--max-tokens", "8", "--device", "cpu", "--dtype", "fp32"]
    answer = CliRunner().invoke(main, command, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout
