"""Llama: pre-norm blocks, each applied once. It is a single loop, until ``retrofit`` makes a looped model of it.

for each layer: x = x + attention(N1 x), x = x + mlp(N2 x);  logits = W N(x)

Paper: arXiv:2302.13971. The names are those of the published modelling file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.interop.architectures import Form, ParsedConfig
from loopkit.interop.architectures.decoder import decoder_weight_map, read_decoder, rotary_buffer, write_decoder
from loopkit.interop.config import Config
from loopkit.interop.weight_map import Buffer, Shape, WeightMap

NORMS = {
    "input_layernorm": "around_attention.norm",
    "post_attention_layernorm": "around_mlp.norm",
}


class Llama(Form):
    """``LlamaForCausalLM``."""

    name = "llama"
    model_type = "llama"
    classes = ("LlamaForCausalLM",)
    any_loops = False

    def read(self, config: Config) -> ParsedConfig:
        model = read_decoder(config, "pre", carry="identity", gate="none")
        config.ignore_keys("pretraining_tp")
        return ParsedConfig(
            model=model,
            objective={"supervision": "terminal"},
            loops=1,
            length=config.count("max_position_embeddings", 2048),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, max_loops: int, length: int) -> dict[str, Any]:
        own: dict[str, Any] = {"architectures": list(self.classes), "model_type": self.model_type}
        own |= {"attention_bias": False, "mlp_bias": False}
        return dict(sorted((write_decoder(model, length=length) | own).items()))

    def weight_map(self, model: Mapping[str, Any], *, length: int, max_loops: int) -> WeightMap:
        return decoder_weight_map(model, NORMS)

    def buffer(self, name: str, shape: Shape, model: Mapping[str, Any]) -> Buffer | None:
        return rotary_buffer(name, shape, model)
