"""Modelling code of exported folders against loopkit's own model; it needs no transformers."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from loopkit.components.attention import attend as torch_attention
from loopkit.inference.prompts import sample_key
from loopkit.interop import export_run, import_folder
from loopkit.interop.architectures import forms
from loopkit.interop.architectures.loopkit import TABLES, unsupported_components
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.interop.self_contained import modelling_code
from loopkit.interop.templates.layers import CausalAttention, Pass
from loopkit.interop.templates.looped import LoopedParts
from loopkit.interop.templates.noise import sample_keys
from loopkit.interop.templates.slots import count_slots
from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import Recipe, load_recipe, recipe_of
from loopkit.registry.catalog import builtin_offers
from loopkit.runs import RunFolder
from loopkit.runs.checkpoint import WEIGHTS
from tests.e2e import documented
from tests.training.runs import fit

LENGTH, VOCABULARY, MAX_LOOPS = 12, 259, 4
RMS = {"type": "rmsnorm"}
SECTIONS: dict[str, dict[str, Any]] = {
    "learned, layer norms, biases": {
        "position": "learned",
        "embedding": {"scale": "sqrt_width", "dropout": 0.1},
        "block": {
            "attention": {"heads": 2, "qkv_bias": True, "out_bias": True, "dropout": 0.1, "out_dropout": 0.1},
            "mlp": {"type": "gelu", "bias": True, "exact": False},
            "norm": "layernorm",
            "placement": "post_sandwich",
        },
        "readout": {"type": "norm", "norm": "layernorm"},
    },
    "prelude and coda with a readout that is fed back": {
        "block": {"attention": {"heads": 2}},
        "prelude": {"layers": 1, "norm": RMS, "project": "orthogonal"},
        "core": 2,
        "coda": {"layers": 2, "norm": RMS, "project": "orthogonal"},
        "injection": {"type": "add", "norm": RMS},
        "carry": {"type": "chain", "of": ["readout", {"type": "clamp", "rms": 0.7, "side": "above"}]},
        "readout": "final_only",
        "gate": {"type": "linear", "reads": "readout"},
        "head": {"tied": False, "bias": True},
    },
    "a random start and value embeddings": {
        "position": {"type": "rope", "pairing": "interleaved"},
        "block": {
            "attention": {"heads": 4, "kv_heads": 2, "qk_norm": RMS, "value_embeddings": "odd", "value_gate": 4},
            "mlp": "relu2",
        },
        "prelude": 1,
        "core": 2,
        "coda": {"layers": 1, "norm": RMS},
        "start": {"type": "normal", "std": 0.5, "truncate": 2.0},
        "injection": {"type": "diagonal", "input": "zero_order_hold"},
        "tie": {"coda.norm": "readout.norm"},
    },
    "depth-scaled placements": {
        "position": "none",
        "block": {"attention": {"heads": 2, "head_size": 6, "qk_bias": True}, "placement": "deepnorm"},
        "prelude": {
            "layers": 1,
            "block": {
                "type": "transformer",
                "attention": {"heads": 2},
                "placement": {"type": "pre_scaled", "gain": 2.0},
            },
        },
        "start": {"type": "normal"},
        "injection": "gate",
        "carry": "damping",
        "readout": {"type": "alpha", "per_loop": True, "s_ref": "learned"},
    },
    "a scaled core": {
        "block": {"attention": {"heads": 2}, "placement": "pre_scaled"},
        "start": "zeros",
        "injection": {"type": "concat", "bias": True},
        "carry": {"type": "norm", "norm": RMS},
        "readout": {"type": "alpha", "alpha": 0.3},
    },
    "post-norm with a clamp": {
        "block": {"attention": {"heads": 2}, "placement": "post"},
        "injection": "add",
        "carry": "clamp",
        "readout": "raw",
    },
    "sandwich norms": {"block": {"attention": {"heads": 2}, "placement": "pre_sandwich"}, "carry": "readout"},
}


def recipe(path: Path, section: dict[str, Any], **train: Any) -> Recipe:
    values = {
        "loopkit": 2,
        "data": {"source": "python_docs", "tokenizer": "bytes", "length": LENGTH},
        "model": {"width": 16, "core": 1} | section,
        "objective": {"supervision": "terminal"},
        "train": {"steps": 1, "batch": 2, "precision": "fp32", "device": "cpu"} | train,
        "evaluate": {"every": None},
    }
    values["train"] |= {"schedule": {"type": "uniform", "min": 2, "max": MAX_LOOPS}}
    return recipe_of(values, path / "recipe.yaml")


class Cached:
    """Attention as transformers calls it, with a cache of its own."""

    def __init__(self) -> None:
        self.slots: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, attention: CausalAttention, slot: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        old = self.slots.get(slot)
        if old is not None:
            k, v = torch.cat([old[0], k], dim=2), torch.cat([old[1], v], dim=2)
        self.slots[slot] = (k, v)
        groups = attention.heads // attention.kv_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        queries, keys = q.shape[2], k.shape[2]
        mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)[None, None]
        return torch_attention(q, k, v, mask).transpose(1, 2)


class Exported(LoopedParts):
    """The exported model without transformers."""

    def __init__(self, section: dict[str, Any], native: LoopedModel) -> None:
        super().__init__()
        self.build_parts(section, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=MAX_LOOPS)
        self.lm_head = nn.Linear(16, VOCABULARY, bias=section["head"]["bias"])
        weights = forms()["loopkit"].weight_map(section, length=LENGTH, max_loops=MAX_LOOPS)
        published = weights.to_published(native.state_dict())
        published |= {alias: published[name] for alias, name in weights.aliases.items()}
        assert not self.load_state_dict({name.removeprefix("model."): v for name, v in published.items()}).missing_keys

    def logits(self, tokens: Tensor, num_loops: int, attend: Cached, first: int = 0) -> Tensor:
        positions = torch.arange(first, first + tokens.shape[1]).expand(tokens.shape)
        sample = torch.zeros(len(tokens), dtype=torch.int64)
        run = Pass(positions, attend, tokens)
        return self.lm_head(self.run_loops(self.embedding.tokens(tokens), run, num_loops, sample))


def both(path: Path, section: dict[str, Any]) -> tuple[LoopedModel, Exported, dict[str, Any]]:
    """The same model in loopkit and as it is exported, with random weights everywhere."""
    chosen = recipe(path, section)
    sizes = {"vocabulary": VOCABULARY, "max_length": LENGTH, "max_loops": MAX_LOOPS}
    native = build_model(chosen.model, **sizes, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in native.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    plain = dict(chosen.values["model"]) | {"vocabulary": VOCABULARY}
    return native, Exported(plain, native).eval(), plain


@pytest.mark.parametrize("name", SECTIONS)
@torch.no_grad()
def test_logits_equal_those_of_loopkit(name: str, tmp_path: Path) -> None:
    native, exported, section = both(tmp_path, SECTIONS[name])
    tokens = torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    batch = Batch.of(tokens, sample=torch.zeros(2, dtype=torch.int64))
    for loops in range(1, MAX_LOOPS + 1):
        expected = native.run(batch, Loops.fixed(loops)).logits(loops)
        whole = Cached()
        torch.testing.assert_close(exported.logits(tokens, loops, whole), expected, rtol=1e-5, atol=1e-5)
        assert sorted(whole.slots) == list(range(count_slots(section, loops)))
        cached = Cached()
        parts = [exported.logits(tokens[:, i : i + 4], loops, cached, i) for i in range(0, LENGTH, 4)]
        torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=1e-4, atol=1e-5)


def test_gradients_equal_those_of_loopkit(tmp_path: Path) -> None:
    native, exported, _ = both(tmp_path, SECTIONS["prelude and coda with a readout that is fed back"])
    tokens = torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    native.run(Batch.of(tokens), Loops.fixed(3)).logits(3).logsumexp(-1).sum().backward()
    exported.logits(tokens, 3, Cached()).logsumexp(-1).sum().backward()
    result = {name: parameter.grad for name, parameter in exported.named_parameters()}
    for name, parameter in native.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(result[name.replace("head.", "lm_head.")], parameter.grad, rtol=1e-4, atol=1e-5)


def test_every_option_of_a_component_is_implemented() -> None:
    """A component that gains an option in loopkit needs it in the modelling code too."""
    options = {(offer.kind, offer.name): set(offer.schema.options) for offer in builtin_offers() if offer.schema}
    for kind in TABLES.keys() - {"core", "gate"}:
        for name, implementation in TABLES[kind].items():
            assert _keyword_only(implementation) == options[kind, name], f"{kind} {name}"


def _keyword_only(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def test_sample_keys_equal_those_of_generation() -> None:
    tokens = torch.tensor([[0, 0, 7, 3], [1, 2, 3, 4]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    assert sample_keys(tokens, mask).tolist() == [sample_key([7, 3]), sample_key([1, 2, 3, 4])]


def test_code_imports_neither_loopkit_nor_indirect_modules() -> None:
    """transformers 4.56 copies a class's module and those that this module imports itself."""
    imports = {name.removesuffix(".py"): _relative_imports(text) for name, text in modelling_code().items()}
    assert imports["modeling_loopkit"] == set(imports) - {"modeling_loopkit"}
    assert imports["configuration_loopkit"] == {"slots"}
    assert imports["slots"] == set()


def _relative_imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level or not (node.module or "").startswith("loopkit")
            found |= {node.module or ""} if node.level else set()
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("loopkit") for alias in node.names)
    return found


@pytest.mark.parametrize("name", ["depth-scaled placements", "a random start and value embeddings", "a scaled core"])
def test_export_and_import_keep_tensors_and_recipe(name: str, tmp_path: Path) -> None:
    trained = fit(recipe(tmp_path, SECTIONS[name]), tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "out").form == "loopkit"
    imported = import_folder(tmp_path / "out", RunFolder(tmp_path / "back"), tokenizer="bytes")
    assert imported.loops == 3
    before, after = (load_file(result.checkpoint.path / WEIGHTS) for result in (trained, imported))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    was, now = (load_recipe(tmp_path / run / "resolved.yaml").values for run in ("run", "back"))
    changed = {key for key, value in was["model"].items() if now["model"][key] != value}
    assert changed <= {"init", "vocabulary"}
    assert was["train"]["schedule"] == now["train"]["schedule"]
    again = export_run(tmp_path / "back", tmp_path / "again")
    assert (again.form, again.unchanged) == ("loopkit", True)


def test_components_without_code_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from loopkit.components.carry import Identity\nfrom loopkit.registry import register\n\n\n"
        '@register("carry", "own")\nclass Own(Identity):\n    """The state itself."""\n\n'
        "    def __init__(self) -> None:\n        super().__init__()\n"
    )
    values = dict(recipe(tmp_path, SECTIONS["sandwich norms"]).values) | {"plugins": ["own.py"]}
    values["model"] = values["model"] | {"carry": "own"}
    fit(recipe_of(values, tmp_path / "recipe.yaml"), tmp_path / "run")
    with pytest.raises(NotRepresentable, match=r"model.carry: carry 'own' has no modelling code; it has identity, "):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_a_shared_parameter_is_refused() -> None:
    tie = {"core.blocks.0.mlp.up.weight": "core.blocks.0.mlp.gate.weight"}
    (problem,) = unsupported_components({"tie": tie})
    assert "only whole modules can be shared" in problem


def test_depth_beyond_parameters_is_refused(tmp_path: Path) -> None:
    _, exported, _ = both(tmp_path, SECTIONS["depth-scaled placements"])
    with pytest.raises(ValueError, match="num_loops must be 1 to 4, not 5"):
        exported.logits(torch.zeros(1, 2, dtype=torch.int64), 5, Cached())


@pytest.mark.e2e
def test_commands_of_the_guide_run(root: Path, tmp_path: Path) -> None:
    """transformers.md: from training to transformers, where it is installed, and back."""
    blocks = list(documented.blocks(root / "docs/guides/transformers.md"))
    for block in blocks:
        for command in documented.commands(block) if block.language == "bash" else ():
            documented.run_here(command, tmp_path)
    card = (tmp_path / "small-hf" / "README.md").read_text()
    assert "library_name: transformers" in card
    assert all(f"| **{depth}** |" in card or f"| {depth} |" in card for depth in range(1, 5))
    files = [*tmp_path.glob("runs/small/eval/step-00000004*.json"), *tmp_path.glob("runs/small-again/eval/*.json")]
    own, again = ([row["loss"] for row in json.loads(file.read_text())["depths"]] for file in files)
    assert len(own) == 4
    assert own == pytest.approx(again, rel=1e-6)
    pytest.importorskip("transformers")
    (script,) = (block.text for block in blocks if block.language == "python")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 4
