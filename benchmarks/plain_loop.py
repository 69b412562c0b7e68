"""The looped model of the 44M recipe as a plain PyTorch training loop: dense logits, SDPA, AdamW.

Dims: B sequences, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of a step.

    Args:
        batch: Sequences of a step.
        length: Tokens of a sequence.
        loops: Times that the core runs.
        vocabulary: Number of tokens.
        width: Channels.
        layers: Blocks of the core.
        heads: Attention heads.
        dropout: Probability, in embeddings, attention and blocks.
    """

    batch: int = 4
    length: int = 256
    loops: int = 4
    vocabulary: int = 20_000
    width: int = 512
    layers: int = 8
    heads: int = 8
    dropout: float = 0.0

    @property
    def hidden(self) -> int:
        """Channels inside the MLP."""
        return 4 * self.width

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.length


class Block(nn.Module):
    """A pre-norm transformer block with SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, self.heads, self.dropout = shape.width, shape.heads, shape.dropout
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x_BTD)).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2).chunk(3, dim=1)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x_BTD = x_BTD + F.dropout(self.out(attended.transpose(1, 2).flatten(2)), self.dropout, self.training)
        gate, up = self.gate_up(self.norm2(x_BTD)).chunk(2, dim=-1)
        return x_BTD + F.dropout(self.down(F.silu(gate) * up), self.dropout, self.training)


class PlainModel(nn.Module):
    """Embedding, a core that runs several times, and a tied head that reads every loop."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.length, shape.width)
        self.core = nn.ModuleList(Block(shape) for _ in range(shape.layers))

    def forward(self, tokens_BT: Tensor, labels_BT: Tensor) -> Tensor:
        """Mean cross-entropy of the loops, in nats a token."""
        at_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTD = F.dropout(self.tokens(tokens_BT) + self.positions(at_T), self.shape.dropout, self.training)
        losses = []
        for _ in range(self.shape.loops):
            for block in self.core:
                x_BTD = block(x_BTD)
            logits = F.linear(x_BTD, self.tokens.weight).flatten(0, 1)
            losses.append(F.cross_entropy(logits, labels_BT.flatten()))
        return torch.stack(losses).mean()


def plain_step(shape: Shape, *, device: str, bf16: bool, compile: bool) -> Callable[[int], None]:
    """Return a function that runs one optimizer step and waits for it."""
    torch.manual_seed(0)
    model = PlainModel(shape).to(device).train()
    fused = device != "cpu" or None
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=fused)
    run = torch.compile(model) if compile else model
    tokens = torch.randint(shape.vocabulary, (shape.batch, shape.length + 1), device=device)

    def step(number: int) -> None:
        with torch.autocast(device, torch.bfloat16) if bf16 else nullcontext():
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step
