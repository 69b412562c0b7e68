"""Check an exported folder against recorded numbers, in a process that cannot import loopkit.

Run as ``python transformers_process.py FOLDER REFERENCE``. REFERENCE is a safetensors file: tokens ``x``, ``logits/K``,
``generated/K`` of the prompts in ``PROMPTS``, ``loss`` and ``grad/NAME`` at ``LOSS_DEPTH``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

DEPTHS = range(1, 9)
GENERATED = (1, 3, 5)
LOSS_DEPTH = 3
PROMPTS = (6, 3, 5)
"""Tokens of each row of ``x`` that are a prompt."""


def main(folder: Path, reference: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    stored = load_file(reference)
    x = stored["x"]

    def load(cls: Any = AutoModelForCausalLM, path: Path = folder, **options: Any) -> Any:
        return cls.from_pretrained(path, trust_remote_code=True, **options).eval()

    model = load()
    with torch.no_grad():
        for depth in DEPTHS:
            torch.testing.assert_close(model(x, num_loops=depth).logits, stored[f"logits/{depth}"], rtol=0, atol=1e-5)
    check_generation(model, stored)
    result = model(x, labels=x, num_loops=LOSS_DEPTH)
    result.loss.backward()
    torch.testing.assert_close(result.loss.detach(), stored["loss"], rtol=1e-6, atol=0)
    grads = {f"grad/{name}": parameter.grad for name, parameter in model.named_parameters()}
    expected = {name: value for name, value in stored.items() if name.startswith("grad/")}
    assert expected.keys() == {name for name, value in grads.items() if value is not None}
    error = sum((grads[name] - value).square().sum() for name, value in expected.items())
    assert (error / sum(value.square().sum() for value in expected.values())).sqrt() < 1e-5

    saved = reference.with_name("saved")
    model.save_pretrained(saved)
    again = load(path=saved)
    with torch.no_grad():
        states = model(x, num_loops=4, output_hidden_states=True).hidden_states
        assert torch.equal(again(x).logits, model(x).logits)
        assert torch.equal(load(AutoModel)(x).last_hidden_state, model.model(x).last_hidden_state)
        deeper = load(num_loops=LOSS_DEPTH, attn_implementation="eager")
        torch.testing.assert_close(deeper(x).logits, stored[f"logits/{LOSS_DEPTH}"], rtol=0, atol=1e-5)
    assert len(states) == 5
    assert AutoConfig.from_pretrained(folder, trust_remote_code=True).num_hidden_layers == len(seen_slots(load, x))


def check_generation(model: Any, stored: Any) -> None:
    """Greedy tokens of a batch padded on the left, with and without a cache."""
    import torch

    x, longest = stored["x"], max(PROMPTS)
    ids, mask = torch.zeros(2, len(x), longest, dtype=torch.int64)
    for row, length in enumerate(PROMPTS):
        ids[row, longest - length :] = x[row, :length]
        mask[row, longest - length :] = 1
    for depth in GENERATED:
        expected = stored[f"generated/{depth}"]
        options = {"max_new_tokens": expected.shape[1], "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        for use_cache in (True, False):
            tokens = model.generate(ids, attention_mask=mask, num_loops=depth, use_cache=use_cache, **options)
            assert torch.equal(tokens[:, longest:], expected), (depth, use_cache)


def seen_slots(load: Any, x: Any) -> list[int]:
    """Check that another attention function is called once for every pair of loop and layer, in order."""
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    seen: list[int] = []

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, own_option: str, **_: Any) -> tuple[Any, None]:
        assert own_option == "passed through"
        seen.append(module.layer_idx)
        key, value = (part.repeat_interleave(module.num_key_value_groups, dim=1) for part in (key, value))
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2), None

    ALL_ATTENTION_FUNCTIONS.register("test_attention", attend)
    model = load(attn_implementation="test_attention")
    with torch.no_grad():
        model(x, own_option="passed through")
    assert seen == list(range(model.config.num_hidden_layers))
    return seen


if __name__ == "__main__":
    sys.modules["loopkit"] = None  # type: ignore[assignment]  # an import of it fails
    main(Path(sys.argv[1]), Path(sys.argv[2]))
