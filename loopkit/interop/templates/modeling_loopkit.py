"""A looped language model exported by loopkit, for transformers 4.56 to 5.

transformers 4.56 copies only the modules of the folder that this one imports itself, so it imports from all of them.

Dims: B sequences, T tokens, D width, H heads, R head size, S keys.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from loopkit.interop.templates.attention import LoopAttention
from loopkit.interop.templates.blocks import Transformer
from loopkit.interop.templates.configuration_loopkit import LoopkitConfig
from loopkit.interop.templates.layers import CausalAttention, Pass
from loopkit.interop.templates.looped import LoopedParts
from loopkit.interop.templates.noise import sample_keys
from loopkit.interop.templates.parts import Normal
from loopkit.interop.templates.slots import count_slots

MASK_PARAMETERS = frozenset(inspect.signature(create_causal_mask).parameters)
CACHE = "cache" if "cache" in MASK_PARAMETERS else "past_key_values"
"""They differ between versions of transformers, and so does the name of the cache in arguments and results."""


class LoopkitPreTrainedModel(PreTrainedModel):
    """Base class: which features of transformers the model supports, and initial weights of new parameters."""

    config: LoopkitConfig
    config_class = LoopkitConfig
    base_model_prefix = "model"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flash_attn_2 = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _no_split_modules = (Transformer.__name__,)
    _skip_keys_device_placement = (CACHE,)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise matrices that a checkpoint lacks; other parameters keep their values of construction."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(bias := getattr(module, "bias", None), Tensor):
                nn.init.zeros_(bias)


class LoopkitModel(LoopkitPreTrainedModel, LoopedParts):
    """Everything up to the head: embedding, prelude, loops, coda and readout."""

    def __init__(self, config: LoopkitConfig) -> None:
        super().__init__(config)
        self.build_parts(
            config.recipe_model,
            vocabulary=config.vocab_size,
            max_length=config.max_position_embeddings,
            max_loops=config.max_loops,
        )
        self.loop_attention = nn.ModuleList()
        self._add_slots(config.num_loops)
        super().post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding.tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embedding.tokens = value

    def _add_slots(self, num_loops: int) -> None:
        """Make attention of further loops."""
        attentions = self.attentions(num_loops)
        for i in range(len(self.loop_attention), len(attentions)):
            self.loop_attention.append(LoopAttention(self.config, i, attentions[i]).train(self.training))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        num_loops: int | None = None,
        sample: Tensor | None = None,
        cache: Any = None,
        cache_position: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Run the loops.

        Args:
            input_ids: ``[B, T]``, the new tokens.
            attention_mask: ``[B, S]``, 0 at padding, of all tokens including cached ones.
            position_ids: ``[B, T]``; None counts the tokens that are not padding.
            past_key_values: A cache of transformers; newer versions call it ``cache``.
            inputs_embeds: ``[B, T, D]``, rows of the token table instead of ``input_ids``.
            use_cache: Whether to return a cache; None: as the configuration states.
            output_hidden_states: Whether to return the first state and the state after every loop.
            num_loops: Number of loops; None: that of the configuration.
            sample: ``[B]`` int64, keys of the random first state, if the model has one; None: 0.
            cache: As ``past_key_values``.
            cache_position: Unused; the cache determines it.
            return_dict: Unused; the result is always an object.
            kwargs: Passed to the attention function.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        vectors = self.embedding.tokens(input_ids) if inputs_embeds is None else inputs_embeds
        batch, length = vectors.shape[:2]
        loops = self.config.num_loops if num_loops is None else num_loops
        use_cache = getattr(self.config, "use_cache", True) if use_cache is None else use_cache
        cache = past_key_values if cache is None else cache
        if cache is None and use_cache and not self.training:
            cache = DynamicCache()
        seen = 0 if cache is None else cache.get_seq_length()
        place = torch.arange(length, device=vectors.device) + seen
        mask = self._mask(vectors, attention_mask, place, cache, position_ids)
        if position_ids is None:
            position_ids = place.expand(batch, length)
            if attention_mask is not None and attention_mask.dim() == 2:
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, seen : seen + length]
        position_ids = position_ids.expand(batch, length)
        if len(self.loop_attention) < count_slots(self.config.recipe_model, loops):
            self._add_slots(loops)

        def attend(attention: CausalAttention, slot: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self.loop_attention[slot](q, k, v, mask, cache, position_ids=position_ids, **kwargs).reshape(
                batch, length, attention.heads, attention.head_size
            )

        if sample is None:
            sample = torch.zeros(batch, dtype=torch.int64, device=vectors.device)
        states: list[Tensor] = []
        hidden = self.run_loops(vectors, Pass(position_ids, attend, input_ids), loops, sample, states.append)
        return BaseModelOutputWithPast(
            last_hidden_state=hidden,
            **{CACHE: cache if use_cache else None},
            hidden_states=tuple(states) if output_hidden_states else None,
        )

    def _mask(self, vectors: Tensor, mask: Tensor | None, place: Tensor, cache: Any, position_ids: Any) -> Any:
        """The causal mask in the form of the attention function."""
        embeds = "inputs_embeds" if "inputs_embeds" in MASK_PARAMETERS else "input_embeds"
        values = {
            "config": self.config,
            embeds: vectors,
            "attention_mask": mask,
            "cache_position": place,
            CACHE: cache,
            "position_ids": position_ids,
        }
        return create_causal_mask(**{name: value for name, value in values.items() if name in MASK_PARAMETERS})


class LoopkitForCausalLM(LoopkitPreTrainedModel, GenerationMixin):
    """A looped model with its head."""

    _tied_weights_keys = {"lm_head.weight": "model.embedding.tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LoopkitConfig) -> None:
        super().__init__(config)
        self.model = LoopkitModel(config)
        head = config.recipe_model["head"]
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=head["bias"])
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_loops: int | None = None,
        sample: Tensor | None = None,
        cache: Any = None,
        cache_position: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Compute logits, and the loss of labels after the last loop.

        Args:
            labels: ``[B, T]``, equal to ``input_ids``, -100 where a token is not scored; shifted here.
            logits_to_keep: Number of last tokens with logits, or their indices; 0: all.

        The other arguments are those of ``LoopkitModel``.
        """
        items = kwargs.pop("num_items_in_batch", None)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=past_key_values if cache is None else cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            num_loops=num_loops,
            sample=sample,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept].to(self.lm_head.weight.dtype))
        loss = None
        if labels is not None:
            wide = torch.promote_types(logits.dtype, torch.float32)
            scores, targets = logits[:, :-1].flatten(0, 1).to(wide), labels[:, 1:].flatten().to(logits.device)
            loss = F.cross_entropy(scores, targets, reduction="mean" if items is None else "sum")
            loss = loss if items is None else loss / items
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            **{CACHE: outputs.get(CACHE)},
            hidden_states=outputs.hidden_states,
        )

    def generate(self, inputs: Tensor | None = None, num_loops: int | None = None, **kwargs: Any) -> Any:
        """Generate tokens, as in transformers.

        Args:
            inputs: ``[B, T]``, the prompts, padded on the left.
            num_loops: Number of loops; None: that of the configuration.
            kwargs: Those of ``GenerationMixin.generate``; ``sample`` replaces the key of the random first state, which
                is by default a hash of the prompt.
        """
        prompts = kwargs.get("input_ids") if inputs is None else inputs
        if num_loops is not None:
            kwargs["num_loops"] = num_loops
            if num_loops != self.config.num_loops and kwargs.get("use_cache", True):
                kwargs.setdefault(CACHE, DynamicCache())  # transformers sizes its own by the configuration
        if prompts is not None and "sample" not in kwargs and isinstance(self.model.start, Normal):
            kwargs["sample"] = sample_keys(prompts, kwargs.get("attention_mask"))
        return super().generate(inputs, **kwargs)
