"""Every wrong component fails the check that names its fault, and no other, with a message that says what is wrong."""

from __future__ import annotations

import re

import pytest

from loopkit.testing import NotChecked, Violation, cases
from tests.testing import wrong

FAULTS: list[tuple[type, str, str]] = [
    (wrong.LeaksTheFuture, "causal", "a later token changes an earlier logit"),
    (wrong.KeepsState, "keeps nothing", "keeps state between calls in evaluation"),
    (wrong.WrongDtype, "dtype", r"returns torch\.float16 where everything is torch\.float32"),
    (wrong.IgnoresItsSeed, "seed", "do not follow from the seed"),
    (wrong.SaysNoiseInTraining, "seed", 'says noise="training"'),
    (wrong.StopsAtRandom, "stops", "does not follow from the seed"),
    (wrong.ForgetsStreams, "streams", "does not work where the state has streams"),
    (wrong.UnusedParameter, "gradient", r"no gradient reaches parameter '.*mlp\.up\.weight'"),
    (wrong.WrongShape, "shape", r"wrong shape\n  seen: \[3, 12, 32\], not \[3, 12, 16\]"),
    (wrong.InPlace, "in place", "changes its argument 's' in place"),
    (wrong.BatchDependent, "batch", "depend on its batch"),
    (wrong.LooseState, "only tallies change", "changes 'seen', which is not a registered buffer"),
    (wrong.MisdeclaredMean, "mean", r"declared mean is not that of its draws\n  seen: .* declared 3\.5000"),
    (wrong.GlobalSeed, "seed", "equal generators give different draws"),
    (wrong.OutOfBounds, "draws", "draws outside of its bounds"),
    (wrong.OnceDifferentiable, "double backward", "its second derivative is wrong"),
    (wrong.SilentlyWrongTwice, "double backward", "second derivative is wrong"),
    (wrong.SaysInvariant, "scale", "says scale_invariant, and the scale of the state passes"),
    (wrong.SilentlyInvariant, "scale", "ignores the scale of the state and does not say so"),
    (wrong.BreaksUnderAutocast, "autocast", "breaks under bf16 autocast"),
    (wrong.ForgetsItsCache, "cache", "disagrees with the full pass"),
    (wrong.NotOnMeta, "meta", "does not build on meta"),
    (wrong.LosesState, "save and load", "a file does not hold all of its state"),
    (wrong.DependsOnTheTotal, "depth", "depends on how many loops there are"),
    (wrong.DependsOnTheLength, "depth", "depends on how many loops there are"),
    (wrong.UnsetParameter, "first weights", "parameters or buffers that nothing sets"),
    (wrong.NarrowsTheStream, "autocast", "narrows the stream"),
    (wrong.SeesPadding, "padding", "padding before a sequence changes its logits"),
    (wrong.SaysNothing, "provides a gate", "gives exit logits and does not say so"),
    (wrong.IgnoresItsGenerator, "seed", "equal seeds give different weights"),
    (wrong.CountsPadding, "padding", "padding changes its value"),
    (wrong.WeighsItself, "unweighted", "its value changes with its weight"),
    (wrong.ReadsMore, "loops", "reads others than"),
    (wrong.LooksAhead, "loops so far", "changes with later loops"),
    (wrong.LeavesGradients, "changes nothing", "leaves gradients in the model"),
    (wrong.LosesSilently, "round trip", "nothing is lost, and decoding gives another text"),
    (wrong.Shuffles, "seed", "another order"),
    (wrong.ForgetsVectors, "covers", "does not take each parameter exactly once"),
    (wrong.MiscountsItsState, "state numbers", r"not as large as it says\n  seen: it says 360 and holds 180"),
    (wrong.ClimbsPast, "rate", "goes above its peak"),
    (wrong.OneKeyForAll, "requests", "two of its requests have one key"),
    (wrong.FollowsItsMicroBatch, "only tallies change", r"its forward pass changes 'readout\.mean'"),
    (wrong.TalliesPadding, "micro-batch", r"depends on padding\n  seen: 'model\.readout\.mean' differs"),
    (wrong.TalliesPasses, "micro-batch", r"depends on the micro-batch\n  seen: 'model\.readout\.mean' differs"),
    (wrong.DrawsItsBuffer, "ranks", r"two ranks differ after training\n  seen: 'model\.readout\.mean' differs"),
    (wrong.ThawsItself, "engine step", r"its parameter 'carry\.factor' is trained where"),
    (wrong.MisstatesItsMean, "micro-batch value", "its value depends on the micro-batch\n"),
    (wrong.WantsEveryRow, "micro-batch value", "breaks on sequences of unequal length, and loops of its own"),
    (wrong.DividesByPlaces, "micro-batch value", "its value depends on the micro-batch\n"),
    (wrong.EndsTheProcess, "logs", "its open ends the process"),
]


@pytest.mark.parametrize(("cls", "name", "said"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_wrong_component_fails_the_check_that_names_its_fault(cls: type, name: str, said: str) -> None:
    failed: dict[str, Violation] = {}
    for case in cases(cls):
        try:
            case()
        except NotChecked:
            continue
        except Violation as violation:
            failed[case.check.name] = violation
    assert list(failed) == [name], {key: str(value) for key, value in failed.items()}
    assert re.search(said, str(failed[name])), str(failed[name])
    assert f"{wrong.__file__}:" in str(failed[name])
