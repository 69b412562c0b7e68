"""Kinds of component, how they register, how their options are read, and how a choice of them is built. No torch."""

from loopkit.registry.kinds import KINDS, Kind
from loopkit.registry.options import AtMost, Divides, Factory, Fraction, Share
from loopkit.registry.packages import MissingPackage
from loopkit.registry.register import Registration, register
from loopkit.registry.spec import Spec, use

__all__ = [
    "KINDS",
    "AtMost",
    "Divides",
    "Factory",
    "Fraction",
    "Kind",
    "MissingPackage",
    "Registration",
    "Share",
    "Spec",
    "register",
    "use",
]
