"""Cache policies: each builds the key-value cache of a batch, and is selected by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from loopkit.components.attention import Attention
from loopkit.errors import UserError
from loopkit.loop import Cache, FullCache

Policy = Callable[[int, int], Cache]
"""Builds a cache from the number of sequences and their maximum length in tokens."""

FULL = "full"
POLICIES: dict[str, Policy] = {FULL: FullCache}
"""``full`` stores every token in one slot per loop and layer, which is exact."""


def get_policy(name: str) -> Policy:
    """Return a policy by name.

    Raises:
        UserError: If the policy does not exist.
    """
    if name not in POLICIES:
        raise UserError(f"unknown cache policy {name!r}; policies: {', '.join(POLICIES)}")
    return POLICIES[name]


def uncacheable_components(model: nn.Module) -> list[str]:
    """List the components of a model that mix tokens in a way that a cache cannot reproduce.

    The registration of an attention ``provides`` ``cache``; that of another component that mixes tokens ``lacks`` it,
    or states that the component is not ``causal``.
    """
    names = set()
    for module in model.modules():
        registration = getattr(type(module), "registration", None)
        if registration is None:
            continue
        provides, lacks = (registration.traits.get(name, ()) for name in ("provides", "lacks"))
        causal = registration.traits.get("causal", True)
        if "cache" in lacks or causal is False or (isinstance(module, Attention) and "cache" not in provides):
            names.add(f"{registration.kind} {registration.name!r}")
    return sorted(names)
