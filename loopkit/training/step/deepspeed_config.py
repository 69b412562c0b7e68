"""The DeepSpeed configuration: generated, complete, and written to the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.data.batch_sizes import BatchSizes
from loopkit.errors import UserError
from loopkit.recipe.validation.deepspeed import OWNED_KEYS


def deepspeed_config(sizes: BatchSizes, clip: float | None, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run, with the values that have defaults written out.

    Defaults of DeepSpeed change between its releases (that of ``gradient_clipping`` went from off to 1.0), so nothing
    that bears on the numbers is left to them.

    Args:
        sizes: Batch, micro-batch, accumulation and ranks.
        clip: Largest global gradient norm, or None.
        extra: The user's keys, ``train.deepspeed``; maps merge.

    Raises:
        ValueError: If a key of the user's is one that other settings of the recipe decide.
    """
    for key in extra:
        if key in OWNED_KEYS:
            raise UserError(f"train.deepspeed.{key}: loopkit writes this key itself; set {OWNED_KEYS[key]} instead")
    return _merge(
        {
            "train_batch_size": sizes.batch,
            "train_micro_batch_size_per_gpu": sizes.micro,
            "gradient_accumulation_steps": sizes.accumulation,
            "gradient_clipping": 0.0 if clip is None else clip,
            "steps_per_print": None,
            "wall_clock_breakdown": False,
            "memory_breakdown": False,
            "dump_state": False,
            # its throughput timer waits for the device twice a step
            "timers": {"throughput": {"enabled": False, "synchronized": False}},
            # precision is ours: fp32 parameters under torch.autocast
            "fp16": {"enabled": False},
            "bf16": {"enabled": False},
            "torch_autocast": {"enabled": False},
            "data_types": {"grad_accum_dtype": "fp32"},
            "communication_data_type": "fp32",
            "prescale_gradients": False,
            "gradient_predivide_factor": 1.0,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {
                "stage": 0,
                "contiguous_gradients": True,
                "overlap_comm": False,
                "reduce_scatter": True,
                # its default of 5e8 elements sets 2 GB aside whatever the model
                "reduce_bucket_size": 50_000_000,
                "allgather_partitions": True,
                "allgather_bucket_size": 50_000_000,
                "round_robin_gradients": False,
            },
        },
        extra,
    )


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in extra.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return merged
