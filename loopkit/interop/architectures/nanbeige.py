"""Nanbeige 4.2: a pre-norm Llama stack that runs several times with the same weights.

per loop, for each layer: x = x + attention(N1 x), x = x + mlp(N2 x);  logits = W N(x) after the last loop. The next
loop starts from N(x), or from x if ``skip_loop_final_norm``.

Reference: the modelling and configuration files of Nanbeige/Nanbeige4.2-3B, whose names these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.interop.architectures import Form, ParsedConfig
from loopkit.interop.architectures.decoder import decoder_weight_map, read_decoder, rotary_buffer, write_decoder
from loopkit.interop.config import Config
from loopkit.interop.weight_map import Buffer, Shape, WeightMap
from loopkit.plural import plural

NORMS = {
    "input_layernorm": "around_attention.norm",
    "post_attention_layernorm": "around_mlp.norm",
}

UNSUPPORTED = {
    "enable_double_loop_split": "loops over parts of the stack",
    "enable_hyper_connection": "hyper-connections",
    "enable_mhc": "manifold-constrained hyper-connections",
    "enable_h_res_identity": "hyper-connections",
    "enable_depth_attention": "attention over earlier layers",
    "loop_share_kv": "keys and values shared by loops",
    "ngram_insert_all_layers": "n-gram embeddings",
    "insert_ngram_layer_idx": "n-gram embeddings",
    "emb_neighbor_num": "n-gram embeddings",
    "emb_split_num": "n-gram embeddings",
}
"""Keys of other variants of the architecture, each with what it adds; released checkpoints have them off."""

DETAILS = (
    *("depth_attention_recent_window", "depth_attention_static_anchor_once", "depth_attention_stride"),
    *("emb_tp_num", "kv_channels", "loop_middle_layers", "mhc_diff_for_loop", "mhc_double_stream_position_for_loop"),
    *("mhc_identity_nohresparam", "mhc_init_gating_factor", "mhc_sinkhorn_iterations", "ngram_compressed_tokenizer"),
    *("ngram_embedding_hidden_size", "ngram_fused_mode", "ngram_layer_downproject_size", "ngram_mod_force_prime"),
    *("ngram_vocab_size_ratio", "num_residual_streams", "pretraining_tp", "skip_ngram_for_input"),
)
"""Keys without effect while those of ``UNSUPPORTED`` are off."""


class Nanbeige(Form):
    """``NanbeigeForCausalLM``."""

    name = "nanbeige"
    model_type = "nanbeige"
    classes = ("NanbeigeForCausalLM",)

    def read(self, config: Config) -> ParsedConfig:
        loops = config.count("num_loops", 1)
        carry = "identity" if config.flag("skip_loop_final_norm", False) else "readout"
        model = read_decoder(config, "pre", biases=True, carry=carry, gate="none")
        for key, what in UNSUPPORTED.items():
            config.require(key, False, 0, [], why=f"{what} are not supported")
        _check_loop_weights(config, loops)
        config.ignore_keys(*DETAILS)
        return ParsedConfig(
            model=model,
            objective={"supervision": "terminal"},
            loops=loops,
            length=config.count("max_position_embeddings", 2048),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, max_loops: int, length: int) -> dict[str, Any]:
        attention, mlp = model["block"].get("attention", {}), model["block"].get("mlp", {})
        size = attention.get("head_size") or model["width"] // attention.get("heads", 1)
        own: dict[str, Any] = {
            "architectures": list(self.classes),
            "model_type": self.model_type,
            "num_loops": loops,
            "loop_loss_weights": [],
            "skip_loop_final_norm": model["carry"]["type"] != "readout",
            "head_dim": size,
            "attention_bias": bool(attention.get("qkv_bias")),
            "mlp_bias": bool(mlp.get("bias")),
            "qk_layernorm": attention.get("qk_norm") is not None,
            "pretraining_tp": 1,
        }
        own |= {key: [] if key.endswith("_idx") else False for key in UNSUPPORTED if not key.startswith("emb_")}
        return dict(sorted((write_decoder(model, length=length) | own).items()))

    def weight_map(self, model: Mapping[str, Any], *, length: int, max_loops: int) -> WeightMap:
        return decoder_weight_map(model, NORMS)

    def buffer(self, name: str, shape: Shape, model: Mapping[str, Any]) -> Buffer | None:
        return rotary_buffer(name, shape, model)


def _check_loop_weights(config: Config, loops: int) -> None:
    """Reject weights of loops that contradict the number of loops: the published code runs one more than weights."""
    weights = config.get("loop_loss_weights") or []
    if weights and len(weights) + 1 != loops:
        config.reject(
            f"loop_loss_weights has {plural(len(weights), 'value')}, for which the published code runs "
            f"{len(weights) + 1} loops, but num_loops is {loops}, which other engines run. Make them agree, or empty "
            "loop_loss_weights"
        )
