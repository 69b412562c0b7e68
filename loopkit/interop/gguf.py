"""Write a run as a GGUF file, which llama.cpp runs: the architecture ``nanbeige``, a Llama stack that loops.

The file holds the layers once. Rows of queries and keys are in the order of interleaved rotary pairs, as llama.cpp
stores them for the Llama family. Needs the package gguf (``pip install 'loopkit[gguf]'``).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from loopkit.components.tokenizer import Tokenizer
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tokenizer.published import byte_characters
from loopkit.errors import UserError, file_errors
from loopkit.interop.architectures import forms
from loopkit.interop.exporting import TrainedWeights
from loopkit.interop.roundtrip import LoopRange, NotRepresentable, model_differences
from loopkit.runs.checkpoint import Weights

TYPES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
"""Values of ``--dtype``, as GGUF calls them. Norms stay in fp32."""

TENSORS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Published name to that of llama.cpp; both with the layer before and ``.weight`` after it."""


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE tokenizer as GGUF stores it.

    Args:
        tokens: Token of each id, its bytes written as GPT-2's printable characters.
        special: Ids of tokens that text never contains.
        merges: Pairs of tokens in order of priority, each with a space between.
        pre: Name of llama.cpp's rule that splits text before merging.
        ids: ``bos``, ``eos`` and ``pad``; None if the tokenizer has none.
    """

    tokens: Sequence[str]
    special: frozenset[int]
    merges: Sequence[str]
    pre: str
    ids: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written.

    Args:
        path: The file.
        loops: Loops that it runs.
        step: Optimizer steps after which the run's checkpoint was written.
        notes: What the user should know.
        warnings: Problems of newer checkpoints.
    """

    path: Path
    loops: int
    step: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def export_gguf(
    run: str | Path | None,
    out: Path,
    *,
    step: int | None = None,
    weights: Weights = "trained",
    dtype: str | None = None,
    plugins: Sequence[Path] = (),
    root: Path = Path("runs"),
) -> ExportedFile:
    """Write the model of a run as a GGUF file.

    Args:
        run: Its folder or name; None takes the newest.
        out: The file to write; it appears complete or not at all.
        step: Optimizer step of the checkpoint; None takes the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.
        dtype: Type of matrices, ``fp32`` (the default), ``bf16`` or ``fp16``.
        plugins: Files with components, in addition to those of the run.
        root: Folder of the runs.

    Raises:
        UserError: If ``out`` exists, gguf is not installed, or llama.cpp cannot split text as the tokenizer does.
        NotRepresentable: If llama.cpp cannot run the model; it names the components.
    """
    _import_gguf()
    if out.exists():
        raise UserError(f"{out} already exists; give the exported model another file with --out")
    trained = TrainedWeights.load(run, step=step, weights=weights, plugins=plugins, root=root)
    form, model, recipe = forms()["nanbeige"], trained.plain, trained.recipe
    loops = LoopRange.of(recipe)
    config = form.write(model, loops=loops.mean, max_loops=loops.max, length=recipe.data.length)
    problems = model_differences(model, loops, form, config)
    problems += [f"config.json: {key} is set" for key in ("attention_bias", "mlp_bias", "qk_layernorm") if config[key]]
    if problems:
        raise NotRepresentable(
            "llama.cpp cannot run this model. Its architecture nanbeige differs:\n  " + "\n  ".join(problems)
        )
    vocabulary = read_vocabulary(trained.tokenizer, recipe.data.tokenizer.name)
    weight_map = form.weight_map(model, length=recipe.data.length, max_loops=loops.max)
    tensors = weight_map.to_published(trained.weights)
    write_gguf(out, config, tensors, vocabulary, name=recipe.name, dtype=dtype or "fp32")
    return ExportedFile(out, loops.mean, trained.checkpoint.step, loops.notes, trained.warnings)


def write_gguf(
    out: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    vocabulary: Vocabulary,
    *,
    name: str,
    dtype: str = "fp32",
) -> None:
    """Write a model in the published form ``nanbeige`` as a GGUF file.

    Args:
        out: The file; it appears complete or not at all.
        config: Its configuration.
        tensors: Its weights, by published name.
        vocabulary: Its tokenizer.
        name: Name of the model.
        dtype: A key of ``TYPES``.
    """
    gguf = _import_gguf()
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    partial = out.with_name(f".{out.name}.partial")
    with file_errors(out, "written"):
        out.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(partial, "nanbeige")
        try:
            _add_sizes(writer, config, name)
            _add_vocabulary(writer, vocabulary)
            for published, tensor in tensors.items():
                values = tensor.float()
                if published.endswith(("q_proj.weight", "k_proj.weight")):
                    values = interleave_pairs(values, heads if "q_proj" in published else key_heads)
                kind = gguf.GGMLQuantizationType[TYPES[dtype] if values.dim() > 1 else "F32"]
                writer.add_tensor(_gguf_name(published), gguf.quants.quantize(values.numpy(), kind), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            os.replace(partial, out)
        finally:
            writer.close()
            partial.unlink(missing_ok=True)


def read_vocabulary(tokenizer: Tokenizer, name: str) -> Vocabulary:
    """Return the vocabulary of a byte-level tokenizer.

    Args:
        tokenizer: The tokenizer.
        name: Its name in recipes, for messages.

    Raises:
        UserError: If llama.cpp has no tokenizer that splits text in the same way.
    """
    characters = byte_characters()
    unused = f"{characters[0xFF]} {characters[0xFE]}"  # llama.cpp requires merges; these bytes occur in no UTF-8
    if isinstance(tokenizer, Bytes):
        tokens = [*(characters[byte] for byte in range(256)), "<pad>", "<bos>", "<eos>"]
        return Vocabulary(tokens, frozenset({256, 257, 258}), [unused], "gpt-2", _special_ids(tokenizer))
    inner = tokenizer.published().get("tokenizer.json")
    if inner is None:
        raise UserError(
            f"data.tokenizer: llama.cpp has no tokenizer that splits text as '{name}' does. Train with tokenizer "
            "bytes, or with a byte-level BPE (tokenizer huggingface)"
        )
    model = inner["model"]
    steps = inner.get("pre_tokenizer") or {}
    rules = {step.get("type"): step for step in steps.get("pretokenizers", [steps])}
    pre = {("ByteLevel",): "gpt-2", ("Digits", "ByteLevel"): "smollm"}.get(tuple(rules))
    plain = inner.get("normalizer") is None and not rules.get("ByteLevel", {}).get("add_prefix_space", False)
    plain = plain and rules.get("Digits", {}).get("individual_digits", True)
    plain = plain and (rules.get("ByteLevel", {}).get("use_regex", True) or not model.get("merges"))
    if model.get("type") != "BPE" or pre is None or not plain:
        raise UserError(
            "data.tokenizer: llama.cpp needs a byte-level BPE that splits text as GPT-2 or SmolLM does; "
            f"this one has model {model.get('type')}, normalizer {inner.get('normalizer')} and pre-tokenizer "
            f"{' and '.join(map(str, rules)) or 'none'}. Train with tokenizer bytes, or with another BPE"
        )
    added = {entry["id"]: entry["content"] for entry in inner.get("added_tokens", [])}
    by_id = {number: token for token, number in model["vocab"].items()} | added
    tokens = [by_id.get(number, f"<unused {number}>") for number in range(tokenizer.size)]
    special = {entry["id"] for entry in inner.get("added_tokens", []) if entry["special"]}
    special |= {number for number in range(tokenizer.size) if number not in by_id}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return Vocabulary(tokens, frozenset(special), merges or [unused], pre, _special_ids(tokenizer))


def interleave_pairs(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of queries or keys, in which the halves of a head rotate together, to pairs of neighbours.

    Shapes:
        weight: ``[heads * size, inputs]``, to the same shape.
    """
    size, inputs = weight.shape[0] // heads, weight.shape[1]
    return weight.reshape(heads, 2, size // 2, inputs).transpose(1, 2).reshape(weight.shape).contiguous()


def _gguf_name(published: str) -> str:
    name = published.removesuffix(".weight")
    if not name.startswith("model.layers."):
        return f"{TENSORS[name]}.weight"
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{TENSORS[part]}.weight"


def _add_sizes(writer: Any, config: Mapping[str, Any], name: str) -> None:
    """Write every key that an engine would otherwise fill in with a default of its own."""
    writer.add_name(name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_uint32("nanbeige.num_loops", config["num_loops"])
    writer.add_bool("nanbeige.skip_loop_final_norm", config["skip_loop_final_norm"])


def _add_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    kinds = _import_gguf().TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    numbers = range(len(vocabulary.tokens))
    writer.add_token_types([kinds.CONTROL if number in vocabulary.special else kinds.NORMAL for number in numbers])
    writer.add_token_merges(list(vocabulary.merges))
    for role, number in vocabulary.ids.items():
        if number is not None:
            getattr(writer, f"add_{role}_token_id")(number)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)


def _special_ids(tokenizer: Tokenizer) -> dict[str, int | None]:
    return {"bos": tokenizer.bos, "eos": tokenizer.eos, "pad": tokenizer.pad}


def _import_gguf() -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError:
        raise UserError("--to gguf needs the package gguf: pip install 'loopkit[gguf]'") from None
