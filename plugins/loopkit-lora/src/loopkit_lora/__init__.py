"""Per-loop LoRA on shared blocks (Relaxed Recursive Transformers), as a loopkit plugin."""

from loopkit_lora.block import Lora

__all__ = ["Lora"]
