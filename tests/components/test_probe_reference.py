"""Probes against numbers that the paper's own model produced, in fp64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from loopkit.components.probe import passes
from loopkit.components.probe.norms import Norms
from loopkit.components.probe.radial import Radial
from loopkit.loop import Batch
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import load_recipe

OURS = {
    "token_embedding.weight": "embedding.tokens.weight",
    "position_embedding.weight": "position.table.weight",
    "decode_norm.weight": "readout.norm.weight",
    "attn_norm.weight": "around_attention.norm.weight",
    "ffn_norm.weight": "around_mlp.norm.weight",
    "attn.qkv.weight": "attention.qkv.weight",
    "attn.out_proj.weight": "attention.out.weight",
    "ffn.w1.weight": "mlp.gate.weight",
    "ffn.w3.weight": "mlp.up.weight",
    "ffn.w2.weight": "mlp.out.weight",
}


@pytest.fixture(scope="module")
def reference(golden_dir: Path) -> dict[str, Tensor]:
    return load_file(golden_dir / "readout_blind_spot" / "expected_f64.safetensors")


@pytest.fixture(scope="module")
def make_model(golden_dir: Path, root: Path) -> Callable[[str, int], LoopedModel]:
    weights = load_file(golden_dir / "readout_blind_spot" / "weights.safetensors")

    def our_name(name: str) -> str:
        if name.startswith("layers."):
            _, layer, suffix = name.split(".", 2)
            return f"core.blocks.{layer}.{OURS[suffix]}"
        return OURS[name]

    def make(readout: str, loops: int) -> LoopedModel:
        sizes = ["model.width=32", "model.block.attention.heads=4", "model.core=2", "data.length=16", "data.stride=16"]
        recipe = load_recipe(root / "recipes" / "wikitext_44m_raw.yaml", overrides=[*sizes, f"model.readout={readout}"])
        model = build_model(recipe.model, vocabulary=61, max_length=16, max_loops=loops, seed=0)
        renamed = {
            our_name(name): value for name, value in weights.items() if name in OURS or name.startswith("layers.")
        }
        parameters = dict(model.named_parameters())
        model.load_state_dict({name: renamed[name] for name in parameters}, strict=False)
        return model.double().eval()

    return make


@pytest.mark.parametrize("case", ["norm", "raw", "final_only", "final_only@K4"])
def test_matches_the_reference(
    case: str, reference: dict[str, Tensor], make_model: Callable[[str, int], LoopedModel]
) -> None:
    readout, _, loops = case.partition("@K")
    depths = range(1, int(loops or 6) + 1)
    model = make_model(readout, depths[-1])
    batch = Batch.of(reference["input_ids"], reference["labels"])
    radial, norms = Radial(), Norms()
    with torch.no_grad():
        for t, served in passes(model, batch, depths):
            radial.observe(t, served)
            norms.observe(t, served)
    result = radial.result().by_depth | norms.result().by_depth
    names = ("radial_cos_abs_mean", "dce_dlogscale", "hidden_norm_mean")
    cosine, slope, norm = (reference[f"{case}/{name}"].tolist() for name in names)
    for k in depths:
        assert result["radial_fraction"][k] == pytest.approx(cosine[k - 1], rel=1e-9, abs=1e-9)
        assert result["scale_gradient"][k] == pytest.approx(slope[k - 1], rel=1e-9, abs=1e-9)
        assert result["state_norm"][k]["mean"] == pytest.approx(norm[k - 1], rel=1e-6)  # kept in fp32
