"""Llama: pre-norm blocks, each applied once. It is a loop that runs once, or the material of one (``retrofit``).

for each layer: x = x + attention(N1 x), x = x + mlp(N2 x);  logits = W N(x)

Paper: arXiv:2302.13971. The published modelling file is what the names come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.interop.architectures import Form, Reading
from loopkit.interop.architectures.decoder import decoder_links, read_decoder, rotary_buffer, write_decoder
from loopkit.interop.config import Config
from loopkit.interop.weight_map import DerivedTensor, Links, Shape

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

    def read(self, config: Config) -> Reading:
        model = read_decoder(config, "pre", carry="identity", gate="none")
        config.pass_over("pretraining_tp")
        return Reading(
            model=model,
            objective={"supervision": "terminal"},
            loops=1,
            length=config.count("max_position_embeddings", 2048),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, length: int) -> dict[str, Any]:
        own: dict[str, Any] = {"architectures": list(self.classes), "model_type": self.model_type}
        own |= {"attention_bias": False, "mlp_bias": False}
        return dict(sorted((write_decoder(model, length=length) | own).items()))

    def links(self, model: Mapping[str, Any], *, length: int) -> Links:
        return decoder_links(model, NORMS)

    def derived(self, name: str, shape: Shape, model: Mapping[str, Any]) -> DerivedTensor | None:
        return rotary_buffer(name, shape, model)
