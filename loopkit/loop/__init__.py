"""The data of a forward pass: batch, loops, step, cache, noise and trajectory."""

from loopkit.loop.batch import IGNORE, PAD, Batch
from loopkit.loop.cache import Cache, CodaCache, FullCache, Slot
from loopkit.loop.dropout import Dropout
from loopkit.loop.looped_model import EVERY, LoopedModelProtocol
from loopkit.loop.loops import Loops
from loopkit.loop.noise import Noise
from loopkit.loop.precision import widen
from loopkit.loop.step import Step
from loopkit.loop.tally import Tally, update_buffers
from loopkit.loop.trajectory import Trajectory

__all__ = [
    "EVERY",
    "IGNORE",
    "PAD",
    "Batch",
    "Cache",
    "CodaCache",
    "Dropout",
    "FullCache",
    "LoopedModelProtocol",
    "Loops",
    "Noise",
    "Slot",
    "Step",
    "Tally",
    "Trajectory",
    "update_buffers",
    "widen",
]
