"""The looped model, built from specs, with its weights, ties, and counts of parameters and FLOPs."""

from loopkit.model.build import build_model, initialise
from loopkit.model.count import Flops, Parameters, cache_numbers, count_flops, count_parameters, on_meta
from loopkit.model.looped import LoopedModel
from loopkit.model.tie import tie
from loopkit.model.weights import WeightsError, load_weights, save_weights

__all__ = [
    "Flops",
    "LoopedModel",
    "Parameters",
    "WeightsError",
    "build_model",
    "cache_numbers",
    "count_flops",
    "count_parameters",
    "initialise",
    "load_weights",
    "on_meta",
    "save_weights",
    "tie",
]
