"""A core whose router chooses the tokens of each loop. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Gt, Le, MinLen
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.errors import UserError
from loopkit.loop import Step
from loopkit.registry import register
from loopkit_mor.packing import Packing
from loopkit_mor.router import ExpertChoice, Routing, TokenChoice

Share = Annotated[float, Gt(0), Le(1)]


@register("core", "token_routed", paper="arXiv:2507.10524", causal="evaluation", provides={"routing"})
class TokenRouted(Core):
    """A stack of blocks that each loop applies only to the tokens chosen by a router.

    expert_choice:  s = u + alpha g_k(u) f(u) for the tokens that loop k chose among those of loop k - 1, else s = u
    token_choice:   s = f(u) before the last loop of a token, e + alpha p f(u) in it, and u after it

    The chosen tokens are packed, so the other tokens cost no compute, and a token has keys and values only for the
    loops that it ran (recursion-wise caching). Expert choice is not causal in training, because the top-k choice
    depends on later tokens; in evaluation a token continues if g > 1/2. The model has routers for the loops of
    training only.

    Args:
        layers: Number of blocks.
        router: expert_choice: each loop chooses its tokens; token_choice: each token chooses its number of loops.
        keep: Share of the tokens of a sequence that each loop computes in training with expert_choice: one value per
            loop, non-increasing. null means (K - k + 1) / K. Not for token_choice.
        alpha: Factor on the weight of the router. null means the values of the paper: 0.1 for expert_choice and 1 for
            token_choice.

    Raises:
        UserError: If keep does not match the number of loops, increases, or is set with token_choice.

    Paper: Recursive sharing of keys and values, in which every loop attends to those of the first, is not implemented.
    """

    def __init__(
        self,
        width: int,
        block: Callable[[], Block],
        max_loops: int,
        *,
        layers: PositiveInt,
        router: Literal["expert_choice", "token_choice"] = "expert_choice",
        keep: Annotated[tuple[Share, ...], MinLen(1)] | None = None,
        alpha: PositiveFloat | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.max_depth = max_loops
        if router == "token_choice":
            if keep is not None:
                raise UserError("core 'token_routed': keep has no effect with token_choice; remove it")
            self.router: nn.Module = TokenChoice(width, loops=max_loops, alpha=1.0 if alpha is None else alpha)
        else:
            shares = tuple((max_loops - k) / max_loops for k in range(max_loops)) if keep is None else tuple(keep)
            _check_shares(shares, max_loops)
            self.router = ExpertChoice(width, keep=shares, alpha=0.1 if alpha is None else alpha)

    def forward(self, u: Tensor, step: Step) -> Tensor:
        if not 1 <= step.k <= self.max_depth:
            raise UserError(
                f"core 'token_routed' has routers for loops 1 to {self.max_depth}; it cannot run loop {step.k}"
            )
        if u.dim() != 3:
            raise UserError(f"core 'token_routed' supports a single stream, [B, T, D], not {list(u.shape)}")
        routing: Routing = self.router(u, step)
        num_slots = self._num_slots(routing)
        if num_slots == 0:
            return u
        packing = Packing.of(routing.chosen_BT, num_slots)
        x, inner = packing.take(u), packing.step(step)
        for block in self.blocks:
            x = block(x, inner)
        weight, residual = packing.take(routing.weight_BT)[..., None].to(u.dtype), packing.take(routing.residual_BTD)
        new = residual + weight * x
        if routing.unweighted_BT is not None:
            new = x.where(packing.take(routing.unweighted_BT)[..., None], new)
        return packing.put(new, u)

    def _num_slots(self, routing: Routing) -> int:
        """Number of slots per sequence. It is 0 only in evaluation: in training all ranks must call the blocks."""
        if routing.num_slots is not None:
            return routing.num_slots
        if routing.chosen_BT.is_meta:
            return routing.chosen_BT.shape[1]
        num_chosen = int(routing.chosen_BT.sum(dim=1).max())
        return max(num_chosen, 1) if self.training else num_chosen


def _check_shares(keep: tuple[float, ...], max_loops: int) -> None:
    if len(keep) != max_loops:
        raise UserError(
            f"core 'token_routed': keep has {len(keep)} values, but training runs up to "
            f"{max_loops} loops; set one value per loop"
        )
    if any(later > earlier for earlier, later in pairwise(keep)):
        raise UserError(f"core 'token_routed': keep must not increase, because tokens do not return: {list(keep)}")
