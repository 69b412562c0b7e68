"""LoopFormer: time- and step-size-conditioned blocks, shortcut schedules and their consistency, as a loopkit plugin."""

from loopkit_loopformer.block import LoopFormerBlock
from loopkit_loopformer.regularizer import ShortcutConsistency
from loopkit_loopformer.schedule import Shortcut

__all__ = ["LoopFormerBlock", "Shortcut", "ShortcutConsistency"]
