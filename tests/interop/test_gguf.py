"""GGUF files: their keys and tensors, and the tokens that llama.cpp generates from them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

import loopkit
from loopkit.cli import main
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tokenizer.huggingface import HuggingFace
from loopkit.errors import UserError
from loopkit.inference import generate
from loopkit.interop.gguf import Vocabulary, byte_characters, export_gguf, interleave_pairs, read_vocabulary, write_gguf
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.loop import Batch, Loops
from loopkit.recipe import load_recipe
from tests.e2e import documented
from tests.training.runs import fit

gguf = pytest.importorskip("gguf", reason="needs the extra gguf")


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of nanbeige_mini."""
    return train(root, tmp_path_factory.mktemp("runs") / "run", "train.steps=30", "train.lr.peak=1e-2")


def train(root: Path, folder: Path, *overrides: str) -> Path:
    values = ["evaluate.every=null", "model.core=2", *overrides]
    fit(load_recipe(root / "recipes" / "nanbeige_mini.yaml", ["smoke"], values), folder)
    return folder


def field(file: Path, key: str) -> Any:
    return gguf.GGUFReader(file).fields[key].contents()


def test_every_size_is_written(run: Path, tmp_path: Path) -> None:
    result = export_gguf(run, tmp_path / "model.gguf")
    assert (result.loops, result.step) == (2, 30)
    expected = {
        "general.architecture": "nanbeige",
        "nanbeige.block_count": 2,
        "nanbeige.num_loops": 2,
        "nanbeige.skip_loop_final_norm": False,
        "nanbeige.context_length": 32,
        "nanbeige.embedding_length": 32,
        "nanbeige.feed_forward_length": 64,
        "nanbeige.attention.head_count": 2,
        "nanbeige.attention.head_count_kv": 1,
        "nanbeige.attention.key_length": 16,
        "nanbeige.rope.dimension_count": 16,
        "nanbeige.rope.freq_base": 10000.0,
        "nanbeige.vocab_size": 259,
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.add_bos_token": False,
    }
    assert {key: field(tmp_path / "model.gguf", key) for key in expected} == expected
    assert field(tmp_path / "model.gguf", "nanbeige.attention.layer_norm_rms_epsilon") == pytest.approx(1e-5)


@pytest.mark.parametrize(("dtype", "bound"), [("fp32", 0.0), ("fp16", 1e-3), ("bf16", 4e-3)])
def test_tensors_are_those_of_the_run(dtype: str, bound: float, run: Path, tmp_path: Path) -> None:
    export_gguf(run, tmp_path / "model.gguf", dtype=dtype)
    model, _, _ = loopkit.load(run)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert len(tensors) == 2 * 9 + 3

    def read(name: str) -> torch.Tensor:
        return torch.tensor(gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type))

    block = model.core.blocks[1]
    queries, keys, values = block.attention.qkv.weight.split([32, 16, 16])
    expected = {
        "token_embd.weight": model.embedding.tokens.weight,
        "output.weight": model.head.weight,
        "output_norm.weight": model.readout.norm.weight,
        "blk.1.attn_q.weight": interleave_pairs(queries, 2),
        "blk.1.attn_k.weight": interleave_pairs(keys, 1),
        "blk.1.attn_v.weight": values,
        "blk.1.ffn_down.weight": block.mlp.out.weight,
        "blk.1.ffn_norm.weight": block.around_mlp.norm.weight,
    }
    for name, weight in expected.items():
        tolerance = 0.0 if weight.dim() == 1 else bound
        torch.testing.assert_close(read(name), weight.detach(), rtol=tolerance, atol=tolerance * 1e-3)


def test_halves_become_pairs_of_neighbours() -> None:
    rows = torch.arange(8.0)[:, None]
    assert interleave_pairs(rows, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_byte_characters_are_those_of_gpt2() -> None:
    characters = byte_characters()
    assert len(set(characters.values())) == 256
    assert "".join(characters[byte] for byte in "é\n !".encode()) == "Ã©ĊĠ!"


REFUSED = {
    "placement": (("model.block.placement=post",), NotRepresentable, "model.block.placement: 'post' in the run"),
    "biases": (
        ("model.block.attention.qkv_bias=true", "model.block.attention.out_bias=true"),
        NotRepresentable,
        "bias",
    ),
    "tokenizer": (
        ("data.tokenizer=characters",),
        UserError,
        "this one has model WordLevel, .* Train with",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_models_are_refused(case: str, root: Path, tmp_path: Path) -> None:
    overrides, error, message = REFUSED[case]
    run = train(root, tmp_path / "run", "train.steps=1", *overrides)
    with pytest.raises(error, match=message):
        export_gguf(run, tmp_path / "model.gguf")
    assert [path.name for path in tmp_path.iterdir() if "gguf" in path.name] == []


def test_existing_files_are_not_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("precious")
    with pytest.raises(UserError, match="already exists"):
        export_gguf(run, tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").read_text() == "precious"


def test_a_failed_write_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", fail)
    with pytest.raises(UserError, match="no space left on device"):
        export_gguf(run, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_file(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"
    result = CliRunner().invoke(main, ["export", str(run), "--to", "gguf", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == {
        "file": str(out),
        "to": "gguf",
        "loops": 2,
        "step": 30,
        "weights": "trained",
        "notes": [],
    }


def test_bpe_vocabulary(shared: Path) -> None:
    tokenizer = HuggingFace(path=shared / "data" / "smollm2-tokenizer" / "tokenizer.json")
    vocabulary = read_vocabulary(tokenizer, "huggingface")
    assert vocabulary.pre == "smollm"
    assert len(vocabulary.tokens) == tokenizer.size == 49152
    assert [vocabulary.tokens[i] for i in (19556, 905)] == ["Hello", "Ġworld"]
    assert "Ġ w" in vocabulary.merges or "Ġ t" in vocabulary.merges


def until(tokens: list[int], eos: int) -> list[int]:
    """Tokens up to the end token, at which llama.cpp stops."""
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens


def complete(file: Path, prompt: list[int] | str, count: int) -> list[dict[str, Any]]:
    """Greedy tokens of llama.cpp, each with its id and log probability."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="needs the extra llama-cpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel, params.warmup = 256, 1, False
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    settings = {"temperature": 0.0, "n_probs": 2, "cache_prompt": False}
    answer = xllamacpp.Server(params).handle_completions({"prompt": prompt, "n_predict": count} | settings)
    tokens: list[dict[str, Any]] = answer["choices"][0]["logprobs"]["content"]
    return tokens


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", ["hf", "hf_tied"])
def test_llama_cpp_gives_the_published_tokens(name: str, skip: bool, golden_dir: Path, tmp_path: Path) -> None:
    """One to four loops of the golden weights."""
    folder = golden_dir / "nanbeige_tiny" / name
    config = json.loads((folder / "config.json").read_text())
    expected = load_file(golden_dir / "nanbeige_tiny" / f"{name}.expected.safetensors")
    tokens = [f"<t{number}>" for number in range(config["vocab_size"])]
    vocabulary = Vocabulary(tokens, frozenset(), ["a b"], "gpt-2", {"bos": 1, "eos": 2, "pad": 0})
    for loops in (1, 2, 3, 4):
        file = tmp_path / f"{loops}.gguf"
        settings = config | {"num_loops": loops, "skip_loop_final_norm": skip}
        write_gguf(file, settings, load_file(folder / "model.safetensors"), vocabulary, name=name)
        for number in range(3):
            key = f"skip_{str(skip).lower()}/loops{loops}/greedy/prompt{number}"
            result = complete(file, expected[f"prompt{number}"].tolist(), 12)
            assert [token["id"] for token in result] == until(expected[key].tolist(), eos=2)


@pytest.mark.slow
@pytest.mark.parametrize("carry", ["readout", "identity"])
def test_llama_cpp_equals_loopkit_on_a_trained_run(carry: str, root: Path, tmp_path: Path) -> None:
    """20 prompts of 32 new tokens at one to four loops: equal up to ties, log probabilities to 1e-4."""
    pytest.importorskip("xllamacpp", reason="needs the extra llama-cpp")
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(32, 127, (4 + number,), generator=generator).tolist() for number in range(20)]
    for loops in (1, 2, 3, 4):
        overrides = (f"model.carry={carry}", f"train.schedule.loops={loops}", "data.length=64", "model.width=64")
        train(root, tmp_path / f"run-{loops}", *overrides, "train.steps=500", "train.batch=16", "train.lr.peak=4e-3")
        export_gguf(tmp_path / f"run-{loops}", tmp_path / f"{loops}.gguf")
        model, _, _ = loopkit.load(tmp_path / f"run-{loops}")
        ours = [until(list(result.tokens), 258) for result in generate(model, prompts, depth=loops, max_tokens=32)]
        assert len({token for tokens in ours for token in tokens}) > 10, "a model that repeats itself shows little"
        for prompt, tokens in zip(prompts, ours, strict=True):
            result = complete(tmp_path / f"{loops}.gguf", prompt, 32)
            ids = [token["id"] for token in result]
            with torch.no_grad():
                t = model.run(Batch.of(torch.tensor([prompt + ids])), Loops.fixed(loops))
            log_p = t.logits(loops)[0].log_softmax(dim=-1)[len(prompt) - 1 : -1]
            assert len(ids) == len(tokens) or ids != tokens[: len(ids)]
            for place, token in enumerate(result):
                assert math.isclose(token["logprob"], log_p[place, token["id"]].item(), abs_tol=1e-4)
                if ids[place] != tokens[place]:  # a tie: both are equally likely, and later tokens differ
                    assert math.isclose(log_p[place, tokens[place]].item(), token["logprob"], abs_tol=1e-5)
                    break


def test_llama_cpp_splits_text_as_bytes(run: Path, tmp_path: Path) -> None:
    export_gguf(run, tmp_path / "model.gguf")
    text = "f(x):\n  'é'  # 12 ÿþ"
    ids = [int(token) for token in Bytes().encode([text])[0]]
    from_text, from_ids = (complete(tmp_path / "model.gguf", prompt, 8) for prompt in (text, ids))
    assert from_text == from_ids


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x + 1234567",
        "It's 2026, we'll see: naïve café  tabs\t\tend",
        "日本語 и русский 🙂🙂 ½ x²",
        "a1b22  \n\n  c",
    ],
)
def test_llama_cpp_splits_text_as_our_bpe(text: str, shared: Path, golden_dir: Path, tmp_path: Path) -> None:
    """Small golden weights with random rows for the tokens of SmolLM2."""
    tokenizer = HuggingFace(path=shared / "data" / "smollm2-tokenizer" / "tokenizer.json")
    golden = golden_dir / "nanbeige_tiny" / "hf"
    sizes = {"vocab_size": tokenizer.size, "max_position_embeddings": 256}
    weights = load_file(golden / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.randn(tokenizer.size, 24, generator=generator)
    config = json.loads((golden / "config.json").read_text()) | sizes
    write_gguf(tmp_path / "bpe.gguf", config, weights, read_vocabulary(tokenizer, "huggingface"), name="bpe")
    ids = [int(token) for token in tokenizer.encode([text])[0]]
    from_text, from_ids = (complete(tmp_path / "bpe.gguf", prompt, 4) for prompt in (text, ids))
    assert from_text == from_ids


@pytest.mark.e2e
def test_commands_of_the_guide_run(root: Path, tmp_path: Path) -> None:
    """llama_cpp.md: from training to text of llama.cpp, where it is installed."""
    blocks = list(documented.blocks(root / "docs/guides/llama_cpp.md"))
    for block in blocks:
        for command in documented.commands(block) if block.language == "bash" else ():
            documented.run_here(command, tmp_path)
    assert field(tmp_path / "laptop.gguf", "nanbeige.num_loops") == 2
    pytest.importorskip("xllamacpp", reason="needs the extra llama-cpp")
    (script,) = (block.text for block in blocks if block.language == "python")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip("\n")
