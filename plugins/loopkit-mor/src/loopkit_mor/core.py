"""A core that each token goes through as often as a router decides. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Gt, Le, MinLen
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.loop import Step
from loopkit.registry import register
from loopkit_mor.packing import Packing
from loopkit_mor.router import ExpertChoice, Routing, TokenChoice

Kept = Annotated[float, Gt(0), Le(1)]


@register("core", "token_routed", paper="arXiv:2507.10524", causal="evaluation", provides={"routing"})
class TokenRouted(Core):
    """Blocks one after the other, applied in each loop to the tokens that a router sends there.

    expert_choice:  s = u + alpha g_k(u) f(u) for the tokens that loop k chose, among those of loop k - 1; s = u else
    token_choice:   s = f(u) before a token's last loop, e + alpha p f(u) in it, u after it

    The tokens of a loop are moved together, and the blocks see no others: what has left costs nothing, and its keys and
    values exist only for the loops that it ran (recursion-wise caching). Training by expert choice looks ahead, because
    whether a token is among the largest depends on later ones; in evaluation it goes on where g > 1/2. A model has
    routers for as many loops as training runs.

    Args:
        layers: Number of blocks.
        router: Who chooses: each loop its tokens, or each token its number of loops.
        keep: Share of a sequence's tokens that each loop computes in training by expert choice, one for each loop,
            never rising. null means (K - k + 1) / K. Token choice has none.
        alpha: Factor on the router's weight. null means 0.1 for expert choice and 1 for token choice, as the paper has
            it.

    Raises:
        ValueError: If keep does not fit the loops, or stands beside token choice.

    Paper: Its second way to cache, in which every loop looks at the first one's keys and values, is not here: it needs
    attention that looks across loops.
    """

    def __init__(
        self,
        width: int,
        block: Callable[[], Block],
        max_loops: int,
        *,
        layers: PositiveInt,
        router: Literal["expert_choice", "token_choice"] = "expert_choice",
        keep: Annotated[tuple[Kept, ...], MinLen(1)] | None = None,
        alpha: PositiveFloat | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.max_depth = max_loops
        if router == "token_choice":
            if keep is not None:
                raise ValueError("core 'token_routed': keep is the loops' choice; token_choice leaves it to the tokens")
            self.router: nn.Module = TokenChoice(width, loops=max_loops, alpha=1.0 if alpha is None else alpha)
        else:
            shares = tuple((max_loops - k) / max_loops for k in range(max_loops)) if keep is None else tuple(keep)
            _check(shares, max_loops)
            self.router = ExpertChoice(width, keep=shares, alpha=0.1 if alpha is None else alpha)

    def forward(self, u: Tensor, step: Step) -> Tensor:
        if not 1 <= step.k <= self.max_depth:
            raise ValueError(
                f"core 'token_routed' has routers for loops 1 to {self.max_depth}; loop {step.k} was asked for"
            )
        if u.dim() != 3:
            raise ValueError(f"core 'token_routed' routes a single stream, [B, T, D], not {list(u.shape)}")
        routing: Routing = self.router(u, step)
        slots = self._slots(routing)
        if slots == 0:
            return u
        packing = Packing.of(routing.chosen_BT, slots)
        x, inner = packing.take(u), packing.step(step)
        for block in self.blocks:
            x = block(x, inner)
        weight, onto = packing.take(routing.weight_BT)[..., None].to(u.dtype), packing.take(routing.onto_BTD)
        new = onto + weight * x
        if routing.whole_BT is not None:
            new = x.where(packing.take(routing.whole_BT)[..., None], new)
        return packing.put(new, u)

    def _slots(self, routing: Routing) -> int:
        """How many tokens of a sequence the blocks must see; none only in evaluation, where no rank waits."""
        if routing.slots is not None:
            return routing.slots
        if routing.chosen_BT.is_meta:
            return routing.chosen_BT.shape[1]
        most = int(routing.chosen_BT.sum(dim=1).max())
        return max(most, 1) if self.training else most


def _check(keep: tuple[float, ...], max_loops: int) -> None:
    if len(keep) != max_loops:
        raise ValueError(
            f"core 'token_routed': keep has {len(keep)} shares and training runs up to {max_loops} loops; give as many"
        )
    if any(later > earlier for earlier, later in pairwise(keep)):
        raise ValueError(f"core 'token_routed': keep may not rise, because who has left stays out: {list(keep)}")
