"""Greedy tokens of the published Ouro implementation, at every exit, alone and in a padded batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from loopkit.inference import generate
from loopkit.model import LoopedModel, build_model
from loopkit.recipe.format import HeadConfig
from tests.model.tiny import section

SUBLAYERS = {
    "attention.out": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.out": "mlp.down_proj",
    "around_attention.norm_in": "input_layernorm",
    "around_attention.norm_out": "input_layernorm_2",
    "around_mlp.norm_in": "post_attention_layernorm",
    "around_mlp.norm_out": "post_attention_layernorm_2",
}


def built(folder: Path) -> LoopedModel:
    """Build the checkpoint's model without the importer."""
    sizes = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    attention = {"heads": sizes["num_attention_heads"], "kv_heads": sizes["num_key_value_heads"]}
    model = build_model(
        section(
            width=sizes["hidden_size"],
            core=sizes["num_hidden_layers"],
            block={
                "type": "transformer",
                "attention": attention,
                "mlp": {"type": "swiglu", "hidden": sizes["intermediate_size"]},
                "placement": "pre_sandwich",
            },
            position={"type": "rope", "base": sizes["rope_theta"]},
            carry="readout",
            gate={"type": "linear", "reads": "readout"},
            head=HeadConfig(tied=False),
        ),
        vocabulary=sizes["vocab_size"],
        max_length=64,
        max_loops=8,
    )
    state = {
        "embedding.tokens.weight": weights["model.embed_tokens.weight"],
        "readout.norm.weight": weights["model.norm.weight"],
        "gate.linear.weight": weights["model.early_exit_gate.weight"],
        "gate.linear.bias": weights["model.early_exit_gate.bias"],
        "head.weight": weights["lm_head.weight"],
    }
    for i in range(sizes["num_hidden_layers"]):
        of, to = f"model.layers.{i}", f"core.blocks.{i}"
        state |= {
            f"{to}.{name}.weight": weights[f"{of}.{published_name}.weight"]
            for name, published_name in SUBLAYERS.items()
        }
        qkv = [weights[f"{of}.self_attn.{part}_proj.weight"] for part in "qkv"]
        state[f"{to}.attention.qkv.weight"] = torch.cat(qkv)
    model.load_state_dict(state, strict=True)
    return model.eval()


@pytest.fixture(scope="module", params=["hf", "hf_gqa"])
def case(request: pytest.FixtureRequest, golden_dir: Path) -> tuple[LoopedModel, dict[str, Tensor]]:
    folder = golden_dir / "ouro_tiny"
    return built(folder / request.param), load_file(folder / f"{request.param}.expected.safetensors")


@pytest.mark.parametrize("steps", [4, 8])
@pytest.mark.parametrize("exit", ["exit0/", "exit1/", ""])
def test_greedy_tokens_and_the_logits_that_chose_them(
    case: tuple[LoopedModel, dict[str, Tensor]], steps: int, exit: str
) -> None:
    model, expected = case
    depth = int(exit[4]) + 1 if exit else steps
    prompts = [expected[f"prompt{i}"].tolist() for i in range(3)]
    expected_tokens = [expected[f"ut{steps}/{exit}greedy/prompt{i}"].tolist() for i in range(3)]
    seen: list[Tensor] = []
    handle = model.head.register_forward_hook(lambda part, arguments, logits: seen.append(logits))
    batch = generate(model, prompts, depth=depth, max_tokens=12)
    handle.remove()
    assert [list(item.tokens) for item in batch] == expected_tokens
    alone = [generate(model, [prompt], depth=depth, max_tokens=12)[0] for prompt in prompts]
    assert alone == batch
    for i in range(3):
        logits = expected[f"ut{steps}/{exit}greedy_logits/prompt{i}"]
        error = (torch.stack([at[i] for at in seen]) - logits).abs() / (1 + logits.abs())
        assert error.max() < 2e-4
    if not exit:
        last = expected[f"ut{steps}/batch/last_logits"]
        assert ((seen[0] - last).abs() / (1 + last.abs())).max() < 2e-4
