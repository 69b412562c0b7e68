"""Mixture-of-Recursions: token-level routing over the loops of a shared core, as a loopkit plugin."""

from loopkit_mor.core import TokenRouted
from loopkit_mor.regularizers import RouterBalance, RouterZ

__all__ = ["RouterBalance", "RouterZ", "TokenRouted"]
