"""Ouro: pre-sandwich blocks, the normed state feeds the head, the gate and the next loop.

x = embedding;  per loop, for each layer: x = x + N2(attention(N1 x)), x = x + N4(mlp(N3 x));  then x = N(x), which
feeds the head, the gate and the next loop.

Paper: arXiv:2510.25741. The names are those of the published modelling file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.interop.architectures import Form, ParsedConfig
from loopkit.interop.architectures.decoder import decoder_weight_map, read_decoder, rotary_buffer, write_decoder
from loopkit.interop.config import Config
from loopkit.interop.weight_map import Buffer, Shape, WeightMap, renamed

NORMS = {
    "input_layernorm": "around_attention.norm_in",
    "input_layernorm_2": "around_attention.norm_out",
    "post_attention_layernorm": "around_mlp.norm_in",
    "post_attention_layernorm_2": "around_mlp.norm_out",
}


class Ouro(Form):
    """``OuroForCausalLM``."""

    name = "ouro"
    model_type = "ouro"
    classes = ("OuroForCausalLM",)

    def read(self, config: Config) -> ParsedConfig:
        model = read_decoder(config, "pre_sandwich", carry="readout", gate={"type": "linear", "reads": "readout"})
        config.ignore_keys("early_exit_threshold", "max_window_layers")
        return ParsedConfig(
            model=model,
            objective={"supervision": "exit_weighted"},
            loops=config.count("total_ut_steps", 4),
            length=config.count("max_position_embeddings", 2048),
            notes=_early_exit(config.get("early_exit_threshold")),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, max_loops: int, length: int) -> dict[str, Any]:
        own: dict[str, Any] = {
            "architectures": list(self.classes),
            "model_type": self.model_type,
            "total_ut_steps": loops,
        }
        own |= {"early_exit_threshold": 1.0, "use_sliding_window": False}
        return dict(sorted((write_decoder(model, length=length) | own).items()))

    def weight_map(self, model: Mapping[str, Any], *, length: int, max_loops: int) -> WeightMap:
        gate = renamed("model.early_exit_gate.weight", (1, model["width"]), "gate.linear.weight")
        return decoder_weight_map(model, NORMS, gate, renamed("model.early_exit_gate.bias", (1,), "gate.linear.bias"))

    def buffer(self, name: str, shape: Shape, model: Mapping[str, Any]) -> Buffer | None:
        return rotary_buffer(name, shape, model)


def _early_exit(threshold: Any) -> tuple[str, ...]:
    if isinstance(threshold, int | float) and threshold < 1:
        return (
            f"early_exit_threshold {threshold}: the published model stops each token at this probability. loopkit runs "
            f"a fixed number of loops; --exit gate_cdf with threshold {threshold} stops early",
        )
    return ()
