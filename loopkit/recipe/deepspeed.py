"""Keys of a DeepSpeed configuration that loopkit writes itself, and the recipe setting that decides each."""

from __future__ import annotations

OWNED_KEYS: dict[str, str] = {
    "train_batch_size": "train.batch",
    "train_micro_batch_size_per_gpu": "train.micro_batch",
    "gradient_accumulation_steps": "train.batch and train.micro_batch",
    "gradient_clipping": "train.clip",
    "optimizer": "train.optimizer",
    "scheduler": "train.lr",
    "fp16": "train.precision",
    "bf16": "train.precision",
    "torch_autocast": "train.precision",
    "amp": "train.precision",
    "elasticity": "train.batch",
    "autotuning": "train.micro_batch",
    "managed_gradient_accumulation": "train.micro_batch",
    "gradient_allreduce_op": "train.batch",
    "steps_per_print": "train.log_every",
}
