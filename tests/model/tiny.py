"""Small models for tests, built from recipe sections."""

from __future__ import annotations

from typing import Any

import torch

from loopkit.loop import Batch
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import component
from loopkit.recipe.format import EmbeddingConfig, HeadConfig, ModelConfig, StageConfig

WIDTH, VOCABULARY, LENGTH, LOOPS = 16, 23, 12, 4
BLOCK: dict[str, Any] = {"type": "transformer", "attention": {"heads": 2}, "mlp": {"ratio": 2}}


def section(
    *,
    width: int = WIDTH,
    block: Any = BLOCK,
    core: Any = 2,
    prelude: int | StageConfig = 0,
    coda: int | StageConfig = 0,
    head: HeadConfig | None = None,
    embedding: EmbeddingConfig | None = None,
    tie: dict[str, str] | None = None,
    vocabulary: int | None = None,
    **parts: Any,
) -> ModelConfig:
    """A ``model`` section; ``parts`` are names or maps, by kind."""
    chosen = {"position": "rope", "start": "embedding", "injection": "none", "carry": "identity", "readout": "norm"}
    chosen |= {"gate": "none", "init": "normal"} | parts
    return ModelConfig(
        width=width,
        vocabulary=vocabulary,
        embedding=embedding or EmbeddingConfig(),
        block=component("block", block, width=width),
        prelude=StageConfig(layers=prelude) if isinstance(prelude, int) else prelude,
        core=component("core", {"type": "stack", "layers": core} if isinstance(core, int) else core),
        coda=StageConfig(layers=coda) if isinstance(coda, int) else coda,
        head=head or HeadConfig(),
        tie=tie or {},
        **{kind: component(kind, choice, width=width) for kind, choice in chosen.items()},
    )


def tiny(*, seed: int = 0, max_loops: int = LOOPS, dtype: torch.dtype = torch.float32, **parts: Any) -> LoopedModel:
    """A small model in evaluation mode, its weights large enough for every part to matter."""
    parts = {"init": {"type": "normal", "std": 0.2}} | parts
    model = build_model(section(**parts), vocabulary=VOCABULARY, max_length=LENGTH, max_loops=max_loops, seed=seed)
    return model.to(dtype).eval()


def batch(rows: int = 3, length: int = LENGTH, *, seed: int = 0, unscored: int = 0) -> Batch:
    """Random tokens, each row's next token its label; the first ``unscored`` labels of every row do not count."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (rows, length + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    labels[:, :unscored] = -100
    return Batch.of(tokens[:, :-1].contiguous(), labels)
