"""Every faulty component fails exactly the rule that names its fault, with a message that states the fault."""

from __future__ import annotations

import re

import pytest

from loopkit.testing import NotChecked, Violation, cases
from tests.testing import faulty

FAULTS: list[tuple[type, str, str]] = [
    (faulty.LeaksTheFuture, "causal", "a later token changes an earlier logit"),
    (faulty.KeepsState, "keeps nothing", "keeps state between calls in evaluation"),
    (faulty.WrongDtype, "dtype", r"returns torch\.float16 for an input of torch\.float32"),
    (faulty.IgnoresItsSeed, "seed", "result does not follow from the seed"),
    (faulty.FalseTrainingNoise, "seed", 'states noise="training"'),
    (faulty.StopsAtRandom, "stops", "decisions do not follow from the seed"),
    (faulty.RunsAnotherPass, "micro-batch value", "depends on the micro-batch and different loops"),
    (faulty.UnstatedStop, "stops", "registration and its stop method disagree"),
    (faulty.ForgetsStreams, "streams", "fails with a state that has streams"),
    (faulty.UnusedParameter, "gradient", r"no gradient reaches parameter '.*mlp\.up\.weight'"),
    (faulty.WrongShape, "shape", r"wrong shape\n  seen: \[3, 12, 32\], not \[3, 12, 16\]"),
    (faulty.InPlace, "in place", "changes its argument 's' in place"),
    (faulty.BatchDependent, "batch", "depends on its batch"),
    (faulty.LooseState, "only tallies change", "changes 'seen', which is not a registered buffer"),
    (faulty.MisdeclaredMean, "mean", r"declared mean differs from the mean of its draws\n  seen: .* declared 3\.5000"),
    (faulty.GlobalSeed, "seed", "equal generators give different draws"),
    (faulty.OutOfBounds, "draws", "draws outside its bounds"),
    (faulty.OnceDifferentiable, "double backward", "its second derivative is wrong"),
    (faulty.WrongSecondDerivative, "double backward", "second derivative is wrong"),
    (faulty.FalselyInvariant, "scale", "states scale_invariant, but the scale of the state changes its result"),
    (faulty.UnstatedInvariance, "scale", "invariant to the scale of the state without stating scale_invariant"),
    (faulty.BreaksUnderAutocast, "autocast", "fails under bf16 autocast"),
    (faulty.ForgetsItsCache, "cache", "differs from the full pass"),
    (faulty.NotOnMeta, "meta", "does not build on meta"),
    (faulty.LosesState, "save and load", "saved weights do not contain its whole state"),
    (faulty.DependsOnTheTotal, "depth", "depends on the number of loops"),
    (faulty.UnstatedLastLoop, "last loop", "depends on whether it is the last one"),
    (faulty.DependsOnTheLength, "depth", "depends on the number of loops"),
    (faulty.UnsetParameter, "first weights", "parameters or buffers that nothing sets"),
    (faulty.NarrowsTheStream, "autocast", "narrows the stream"),
    (faulty.SeesPadding, "padding", "padding before a sequence changes its logits"),
    (faulty.UnstatedGate, "provides a gate", "has exit logits without stating provides"),
    (faulty.IgnoresItsGenerator, "seed", "equal seeds give different weights"),
    (faulty.CountsPadding, "padding", "padding changes its value"),
    (faulty.WeighsItself, "unweighted", "its value depends on its weight"),
    (faulty.ReadsMore, "loops", "reads other loops than"),
    (faulty.LooksAhead, "loops so far", "depends on later loops"),
    (faulty.LeavesGradients, "changes nothing", "leaves gradients in the model"),
    (faulty.UnreportedLoss, "round trip", r"lost\(\) is 0, but decoding returns another text"),
    (faulty.Shuffles, "seed", "another order"),
    (faulty.ForgetsVectors, "covers", "does not take each parameter exactly once"),
    (
        faulty.MiscountsItsState,
        "state numbers",
        r"size of its state differs from the reported one\n  seen: it reports 360 numbers and holds 180",
    ),
    (faulty.ClimbsPast, "rate", "exceeds its peak"),
    (faulty.OneKeyForAll, "requests", "two of its requests have the same key"),
    (faulty.FollowsItsMicroBatch, "only tallies change", r"its forward pass changes 'readout\.mean'"),
    (faulty.TalliesPadding, "micro-batch", r"depends on padding\n  seen: 'model\.readout\.mean' differs"),
    (faulty.TalliesPasses, "micro-batch", r"depends on the micro-batch\n  seen: 'model\.readout\.mean' differs"),
    (faulty.DrawsItsBuffer, "ranks", r"two ranks differ after training\n  seen: 'model\.readout\.mean' differs"),
    (faulty.ThawsItself, "engine step", r"its parameter 'carry\.factor' is trained although"),
    (faulty.MisstatesItsMean, "micro-batch value", "its value depends on the micro-batch\n"),
    (faulty.WantsEveryRow, "micro-batch value", "fails on sequences of unequal length and different loops"),
    (faulty.DividesByPlaces, "micro-batch value", "its value depends on the micro-batch\n"),
    (faulty.EndsTheProcess, "logs", r"its open\(\) ends the process"),
]


@pytest.mark.parametrize(("cls", "rule", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_faulty_component_fails_only_its_rule(cls: type, rule: str, message: str) -> None:
    failed: dict[str, Violation] = {}
    for case in cases(cls):
        try:
            case()
        except NotChecked:
            continue
        except Violation as violation:
            failed[case.check.name] = violation
    assert list(failed) == [rule], {key: str(value) for key, value in failed.items()}
    assert re.search(message, str(failed[rule])), str(failed[rule])
    assert f"{faulty.__file__}:" in str(failed[rule])
