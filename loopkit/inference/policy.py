"""Which keys and values generation keeps. A policy makes a cache for a batch, and has a name by which it is chosen."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from loopkit.components.attention import Attention
from loopkit.errors import UserError
from loopkit.loop import Cache, FullCache

Policy = Callable[[int, int], Cache]
"""Makes a cache for a number of sequences, of at most so many tokens each."""

FULL = "full"
POLICIES: dict[str, Policy] = {FULL: FullCache}
"""``full``: one slot for every loop and layer, each of which keeps every token; exact."""


def policy(name: str) -> Policy:
    """The policy of a name.

    Raises:
        ValueError: If there is none.
    """
    if name not in POLICIES:
        raise UserError(f"no cache policy is called {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]


def not_cacheable(model: nn.Module) -> list[str]:
    """Components of a model whose tokens look at each other in a way that no cache serves.

    An attention says in its registration that it ``provides`` ``cache``; any other component that mixes tokens says
    that it ``lacks`` it, or that it is not ``causal``.
    """
    found = []
    for part in model.modules():
        registration = getattr(type(part), "registration", None)
        if registration is None:
            continue
        provides, lacks = (registration.traits.get(name, ()) for name in ("provides", "lacks"))
        causal = registration.traits.get("causal", True)
        if "cache" in lacks or causal is False or (isinstance(part, Attention) and "cache" not in provides):
            found.append(f"{registration.kind} {registration.name!r}")
    return sorted(set(found))
