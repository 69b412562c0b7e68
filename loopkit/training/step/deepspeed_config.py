"""Generate the complete DeepSpeed configuration, which is written to the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.data.batch_sizes import BatchSizes
from loopkit.errors import UserError
from loopkit.recipe.validation.deepspeed import OWNED_KEYS


def deepspeed_config(sizes: BatchSizes, clip: float | None, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run, with every value that affects numbers.

    DeepSpeed's defaults change between releases (``gradient_clipping`` changed from off to 1.0), so the configuration
    does not rely on them.

    Args:
        sizes: Batch, micro-batch, accumulation and ranks.
        clip: Largest global gradient norm, or None.
        extra: The user's keys, ``train.deepspeed``; maps are merged.

    Raises:
        UserError: If a key is determined by other settings of the recipe.
    """
    for key in extra:
        if key in OWNED_KEYS:
            raise UserError(f"train.deepspeed.{key}: loopkit writes this key; set {OWNED_KEYS[key]} instead")
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
            # the throughput timer waits for the device twice a step
            "timers": {"throughput": {"enabled": False, "synchronized": False}},
            # loopkit controls precision: fp32 parameters under torch.autocast
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
                # the default of 5e8 elements reserves 2 GB for any model
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
        current = merged.get(key)
        merged[key] = _merge(current, value) if isinstance(current, dict) and isinstance(value, Mapping) else value
    return merged
