"""``loopkit plan``: counts that are checked by hand."""

from __future__ import annotations

import json
from functools import cache

import pytest

from loopkit.model import build_model, count_parameters
from loopkit.recipe import load_recipe
from tests.cli.test_light import run


@cache
def plan(*words: str) -> dict:
    return json.loads(run("plan", *words, "--json", "--flops", "1e12", "--mfu", "0.5"))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("wikitext_44m_raw", 43_933_696),
        ("wikitext_44m_norm", 43_934_208),
        ("wikitext_129m_raw", 128_821_248),
        ("wikitext_129m_norm", 128_822_016),
    ],
)
def test_published_sizes(name: str, size: int) -> None:
    recipe = load_recipe(name)
    sizes = {"vocabulary": 20_000, "max_length": recipe.data.length, "max_loops": 4}
    assert count_parameters(build_model(recipe.model, **sizes, device="meta")).unique == size


def test_plan_counts_parameters() -> None:
    assert plan("wikitext_44m_raw")["parameters"]["unique"] == 43_933_696


def test_effective_parameters_and_cache_grow_with_depth() -> None:
    result = plan("wikitext_44m_raw")
    looped = 8 * (4 * 512**2 + 3 * 4 * 512**2 + 2 * 512)
    assert result["parameters"]["looped"] == looped
    assert result["parameters"]["effective"]["4"] == 43_933_696 + 3 * looped
    # keys and values of eight layers at four loops, 512 channels, two bytes
    assert result["depths"][-1]["kv_cache_bytes_per_token"] == 2 * 8 * 4 * 512 * 2


def test_steps_tokens_and_time_of_a_run() -> None:
    result = plan("wikitext_44m_raw", "--profile", "mini")
    assert result["steps"] == 450
    assert result["tokens"] == 450 * 16 * 128
    assert result["training_flops"] == result["tokens"] * result["training_flops_per_token"]
    assert result["seconds"] == pytest.approx(result["training_flops"] / 0.5e12)
    # matrix products of the core at four loops and of four heads, forward and backward, without attention scores
    products = 2 * 3 * (4 * 2 * (4 * 128**2 + 3 * 4 * 128**2) + 4 * 259 * 128)
    assert products < result["training_flops_per_token"] < 1.3 * products


def test_epochs_need_the_data() -> None:
    result = plan("wikitext_44m_raw")
    assert "steps" not in result
    assert "--data to count the steps" in run("plan", "wikitext_44m_raw")


def test_the_table_fits_eighty_columns() -> None:
    assert all(
        len(line) <= 80 for line in run("plan", "wikitext_44m_raw", "-p", "mini", "--flops", "1e12").splitlines()
    )


def test_published_size_of_ouro() -> None:
    layer = 4 * 2048**2 + 3 * 2048 * 5632 + 4 * 2048
    result = plan("ouro_1b4_sft", "--devices", "4")
    assert result["parameters"]["unique"] == 2 * 49_152 * 2048 + 24 * layer + 2048 + 2048 + 1
    assert 1.40e9 < result["parameters"]["unique"] < 1.45e9
    assert (result["micro_batch"], result["accumulation"]) == (1, 32)
    # one slot per loop and layer, keys and values of 2,048 channels in two bytes
    assert result["depths"][-1]["kv_cache_bytes_per_token"] == 4 * 24 * 2 * 2048 * 2


def test_a_recipe_on_a_thousand_gpus() -> None:
    result = json.loads(run("plan", "wikitext_44m_raw", "--gpu", "h200", "--gpus", "8", "--mfu", "0.5", "--json"))
    cluster, states = result["cluster"], 43_933_696
    assert cluster["machines"] == {
        "memory": 141e9,
        "flops_per_s": 989e12,
        "mfu": 0.5,
        "link": 450e9,
        "network": 50e9,
        "per_machine": 8,
    }
    assert {layout["gpus"] for layout in cluster["layouts"]} == {2**n for n in range(11)}
    (one,) = [item for item in cluster["layouts"] if item["gpus"] == 8 and item["stage"] == 2 and item["checkpointing"]]
    memory = one["memory_bytes"]
    assert memory["parameters"] == 4 * states
    assert memory["gradients"] == 4 * states // 8
    assert memory["optimizer"] == 8 * states // 8
    total = sum(value for name, value in memory.items() if name != "total")
    assert 0.5 * total < memory["total"] <= total  # the parts do not coexist
    # the batch of 64 is too small for more GPUs
    assert {item["limit"] for item in cluster["layouts"] if item["gpus"] > 64} == {"batch"}


def test_an_unknown_gpu_is_described_by_options() -> None:
    words = ("plan", "wikitext_44m_raw", "-p", "smoke", "--json")
    result = json.loads(run(*words, "--memory", "16", "--flops", "5e13", "--network", "100"))
    assert result["cluster"]["machines"]["memory"] == 16e9
    assert result["cluster"]["machines"]["network"] == 12.5e9
    assert "add --flops or --gpu" in run(*words, "--memory", "16", code=2)
    assert "--gpu tpu: unknown GPU" in run(*words, "--gpu", "tpu", code=2)
