"""Huginn: post-sandwich blocks before, in and after the loop; an adapter combines state and input.

e = prelude(sqrt(D) * embedding);  s_0 ~ N(0, 2/5), truncated at three standard deviations;
s_k = core(W [s_{k-1}, e]);  z = N(coda(N(s)))

Paper: arXiv:2502.05171. The names are those of the published modelling file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from loopkit.interop.architectures import Form, ParsedConfig
from loopkit.interop.config import Config
from loopkit.interop.weight_map import Buffer, TensorGroup, WeightMap, renamed

STD = math.sqrt(2 / 5)
"""Standard deviation of the first state: sqrt(2 / (5 width)) times the embedding's scale, sqrt(width)."""

STAGES = {"prelude": "prelude", "core": "core_block", "coda": "coda"}


class Huginn(Form):
    """``RavenForCausalLM``."""

    name = "huginn"
    model_type = "huginn_raven"
    classes = ("RavenForCausalLM",)

    def read(self, config: Config) -> ParsedConfig:
        width, heads = config.count("n_embd"), config.count("n_heads")
        keys, loops = config.count("num_key_value_heads", heads), config.count("mean_recurrence", 32)
        norm = {"type": "rmsnorm", "eps": config.number("norm_eps", 1e-6)}
        biased = config.flag("qk_bias", True)
        if biased and keys != heads:
            config.reject(f"num_key_value_heads is {keys}: its qk_bias needs as many key heads as query heads")
        config.require("head_dim", width // heads, why="its heads must divide the width")
        config.require("bias", False, why="biases are not supported")
        config.require("block_class_name", "SandwichBlock", why="only sandwich blocks are supported")
        config.require("mlp_class_name", "GatedMLP", why="only the gated MLP is supported")
        config.require("nonlin_name", "SiLU", why="the gate of the MLP must use SiLU")
        config.require("norm_class_name", "RMSNorm_llama", "RMSNorm", why="only RMSNorm is supported")
        config.require("injection_type", "linear", why="only a linear injection is supported")
        config.require("state_init", "like-init", why="only a random first state is supported")
        config.require("test_time_noise", 0, 0.0, why="noise between loops is not supported")
        config.ignore_keys("test_time_noise_type", "activation_checkpoint_impl", "architecture_class_name", "n_layers")
        config.ignore_keys("effective_expected_depth", "init_orthogonal", "init_strategy", "mean_backprop_depth")
        config.ignore_keys("padding_multiple", "sampling_scheme", "vocab_size")
        _check_init_values(config, width)
        return ParsedConfig(
            model={
                "width": width,
                "vocabulary": config.count("padded_vocab_size"),
                "embedding": {"scale": "sqrt_width"},
                "position": {"type": "rope", "base": config.number("rope_base", 50000.0), "pairing": "interleaved"},
                "block": {
                    "type": "transformer",
                    "attention": {"type": "causal", "heads": heads, "kv_heads": keys, "qk_bias": biased},
                    "mlp": {"type": "swiglu", "hidden": config.count("intermediate_size")},
                    "norm": norm,
                    "placement": "post_sandwich",
                },
                "prelude": {"layers": config.count("n_layers_in_prelude")},
                "core": config.count("n_layers_in_recurrent_block"),
                "coda": {"layers": config.count("n_layers_in_coda"), "norm": norm},
                "start": {"type": "normal", "std": STD, "truncate": 3.0},
                "injection": "concat",
                "carry": "identity",
                "readout": {"type": "norm", "norm": norm},
                "gate": "none",
                "head": {"tied": config.flag("tie_embeddings", True)},
                "tie": {"coda.norm": "readout.norm"},
            },
            objective={"supervision": "terminal"},
            loops=loops,
            length=config.count("block_size", 4096),
            notes=("the first state is random: loopkit draws it from the sequence's number and the token's position",),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, max_loops: int, length: int) -> dict[str, Any]:
        block, position, width = model["block"], model["position"], model["width"]
        attention, mlp = block.get("attention", {}), block.get("mlp", {})
        heads = attention.get("heads", 1)
        layers = [model["prelude"]["layers"], model["core"].get("layers", 1), model["coda"]["layers"]]
        std, depth = math.sqrt(2 / (5 * width)), layers[0] + layers[1] * loops + layers[2]
        return {
            "architecture_class_name": "RecurrentGPT",
            "architectures": list(self.classes),
            "bias": False,
            "block_class_name": "SandwichBlock",
            "block_size": length,
            "effective_expected_depth": depth,
            "head_dim": width // heads,
            "init_strategy": "takase",
            "init_values": {
                "embed_scale": math.sqrt(width),
                "embedding": std,
                "out_proj": std / math.sqrt(2 * depth),
                "std": std,
            },
            "injection_type": "linear",
            "intermediate_size": mlp.get("hidden") or round(mlp.get("ratio", 4.0) * width),
            "mean_backprop_depth": min(8, loops),
            "mean_recurrence": loops,
            "mlp_class_name": "GatedMLP",
            "model_type": self.model_type,
            "n_embd": width,
            "n_heads": heads,
            "n_layers": sum(layers),
            "n_layers_in_coda": layers[2],
            "n_layers_in_prelude": layers[0],
            "n_layers_in_recurrent_block": layers[1],
            "nonlin_name": "SiLU",
            "norm_class_name": "RMSNorm_llama",
            "norm_eps": model["readout"].get("norm", {}).get("eps", 1e-6),
            "num_key_value_heads": attention.get("kv_heads") or heads,
            "padded_vocab_size": model["vocabulary"],
            "padding_multiple": 1,
            "qk_bias": attention.get("qk_bias", False),
            "rope_base": position.get("base", 50000.0),
            "sampling_scheme": "poisson-lognormal-filling",
            "state_init": "like-init",
            "test_time_noise": 0,
            "tie_embeddings": model["head"]["tied"],
            "vocab_size": model["vocabulary"],
        }

    def weight_map(self, model: Mapping[str, Any], *, length: int, max_loops: int) -> WeightMap:
        width, vocabulary = model["width"], model["vocabulary"]
        groups = [renamed("transformer.wte.weight", (vocabulary, width), "embedding.tokens.weight")]
        for native, published in STAGES.items():
            for i in range(model[native]["layers"]):
                groups += _block(model, f"transformer.{published}.{i}", f"{native}.blocks.{i}")
        groups += [
            renamed("transformer.adapter.weight", (width, 2 * width), "injection.mix.weight"),
            renamed("transformer.ln_f.weight", (width,), "coda.norm.weight"),
        ]
        if not model["head"]["tied"]:
            groups.append(renamed("lm_head.weight", (vocabulary, width), "head.weight"))
        aliases = {"lm_head.weight": "transformer.wte.weight"} if model["head"]["tied"] else {}
        size = width // model["block"]["attention"]["heads"]
        return WeightMap(tuple(groups), aliases, {"freqs_cis": _rotation(model["position"]["base"], length, size)})


def _block(model: Mapping[str, Any], published: str, native: str) -> list[TensorGroup]:
    width, attention, mlp = model["width"], model["block"]["attention"], model["block"]["mlp"]
    heads = attention["heads"]
    size = width // heads
    rows = (heads + 2 * (attention["kv_heads"] or heads)) * size
    hidden = mlp["hidden"] or round(mlp["ratio"] * width)
    norms = ("around_attention.norm_in", "around_attention.norm_out", "around_mlp.norm_in", "around_mlp.norm_out")
    groups = [
        renamed(f"{published}.attn.Wqkv.weight", (rows, width), f"{native}.attention.qkv.weight"),
        renamed(f"{published}.attn.proj.weight", (width, width), f"{native}.attention.out.weight"),
        TensorGroup(
            ((f"{published}.mlp.fc.weight", (2 * hidden, width)),),
            (f"{native}.mlp.gate.weight", f"{native}.mlp.up.weight"),
        ),
        renamed(f"{published}.mlp.proj.weight", (width, hidden), f"{native}.mlp.out.weight"),
        *(
            renamed(f"{published}.norm_{i}.weight", (width,), f"{native}.{norm}.weight")
            for i, norm in enumerate(norms, 1)
        ),
    ]
    if attention["qk_bias"]:
        bias = ((f"{published}.attn.qk_bias", (2, 1, heads, size)),)
        groups.append(TensorGroup(bias, (f"{native}.attention.qk_bias",), reshaped=True))
    return groups


def _check_init_values(config: Config, width: int) -> None:
    """Check the scale of the embedding and of the first state."""
    values = config.get("init_values")
    if values is None:
        return
    numbers = values if isinstance(values, dict) else {}
    scale, std = numbers.get("embed_scale"), numbers.get("std")
    if not isinstance(scale, int | float) or not math.isclose(scale, math.sqrt(width), rel_tol=1e-6):
        config.reject(f"init_values has embed_scale {scale!r}: it must be the square root of n_embd, {width}")
    elif not isinstance(std, int | float) or not math.isclose(std * scale, STD, rel_tol=1e-6):
        config.reject(f"init_values has std {std!r}: it must be the square root of 2 / (5 n_embd)")


def _rotation(base: float, length: int, size: int) -> Buffer:
    """The cosines and sines that the published weights include: ``[1, length, 1, size / 2, 2]``."""

    def compute() -> Tensor:
        frequency = 1.0 / base ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        return torch.stack([angle.cos(), angle.sin()], dim=-1)[None, :, None].float()

    return Buffer((1, length, 1, size // 2, 2), compute)
