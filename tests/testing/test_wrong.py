"""Every faulty component fails exactly the rule that names its fault, with a message that states the fault."""

from __future__ import annotations

import re

import pytest

from loopkit.testing import NotChecked, Violation, cases
from tests.testing import wrong

FAULTS: list[tuple[type, str, str]] = [
    (wrong.LeaksTheFuture, "causal", "a later token changes an earlier logit"),
    (wrong.KeepsState, "keeps nothing", "keeps state between calls in evaluation"),
    (wrong.WrongDtype, "dtype", r"returns torch\.float16 for an input of torch\.float32"),
    (wrong.IgnoresItsSeed, "seed", "result does not follow from the seed"),
    (wrong.SaysNoiseInTraining, "seed", 'states noise="training"'),
    (wrong.StopsAtRandom, "stops", "decisions do not follow from the seed"),
    (wrong.ForgetsStreams, "streams", "fails with a state that has streams"),
    (wrong.UnusedParameter, "gradient", r"no gradient reaches parameter '.*mlp\.up\.weight'"),
    (wrong.WrongShape, "shape", r"wrong shape\n  seen: \[3, 12, 32\], not \[3, 12, 16\]"),
    (wrong.InPlace, "in place", "changes its argument 's' in place"),
    (wrong.BatchDependent, "batch", "depends on its batch"),
    (wrong.LooseState, "only tallies change", "changes 'seen', which is not a registered buffer"),
    (wrong.MisdeclaredMean, "mean", r"declared mean differs from the mean of its draws\n  seen: .* declared 3\.5000"),
    (wrong.GlobalSeed, "seed", "equal generators give different draws"),
    (wrong.OutOfBounds, "draws", "draws outside its bounds"),
    (wrong.OnceDifferentiable, "double backward", "its second derivative is wrong"),
    (wrong.SilentlyWrongTwice, "double backward", "second derivative is wrong"),
    (wrong.SaysInvariant, "scale", "states scale_invariant, but the scale of the state changes its result"),
    (wrong.SilentlyInvariant, "scale", "invariant to the scale of the state without stating scale_invariant"),
    (wrong.BreaksUnderAutocast, "autocast", "fails under bf16 autocast"),
    (wrong.ForgetsItsCache, "cache", "differs from the full pass"),
    (wrong.NotOnMeta, "meta", "does not build on meta"),
    (wrong.LosesState, "save and load", "saved weights do not contain its whole state"),
    (wrong.DependsOnTheTotal, "depth", "depends on the number of loops"),
    (wrong.DependsOnTheLength, "depth", "depends on the number of loops"),
    (wrong.UnsetParameter, "first weights", "parameters or buffers that nothing sets"),
    (wrong.NarrowsTheStream, "autocast", "narrows the stream"),
    (wrong.SeesPadding, "padding", "padding before a sequence changes its logits"),
    (wrong.SaysNothing, "provides a gate", "has exit logits without stating provides"),
    (wrong.IgnoresItsGenerator, "seed", "equal seeds give different weights"),
    (wrong.CountsPadding, "padding", "padding changes its value"),
    (wrong.WeighsItself, "unweighted", "its value depends on its weight"),
    (wrong.ReadsMore, "loops", "reads other loops than"),
    (wrong.LooksAhead, "loops so far", "depends on later loops"),
    (wrong.LeavesGradients, "changes nothing", "leaves gradients in the model"),
    (wrong.LosesSilently, "round trip", r"lost\(\) is 0, but decoding returns another text"),
    (wrong.Shuffles, "seed", "another order"),
    (wrong.ForgetsVectors, "covers", "does not take each parameter exactly once"),
    (
        wrong.MiscountsItsState,
        "state numbers",
        r"size of its state differs from the reported one\n  seen: it reports 360 numbers and holds 180",
    ),
    (wrong.ClimbsPast, "rate", "exceeds its peak"),
    (wrong.OneKeyForAll, "requests", "two of its requests have the same key"),
    (wrong.FollowsItsMicroBatch, "only tallies change", r"its forward pass changes 'readout\.mean'"),
    (wrong.TalliesPadding, "micro-batch", r"depends on padding\n  seen: 'model\.readout\.mean' differs"),
    (wrong.TalliesPasses, "micro-batch", r"depends on the micro-batch\n  seen: 'model\.readout\.mean' differs"),
    (wrong.DrawsItsBuffer, "ranks", r"two ranks differ after training\n  seen: 'model\.readout\.mean' differs"),
    (wrong.ThawsItself, "engine step", r"its parameter 'carry\.factor' is trained although"),
    (wrong.MisstatesItsMean, "micro-batch value", "its value depends on the micro-batch\n"),
    (wrong.WantsEveryRow, "micro-batch value", "fails on sequences of unequal length and different loops"),
    (wrong.DividesByPlaces, "micro-batch value", "its value depends on the micro-batch\n"),
    (wrong.EndsTheProcess, "logs", r"its open\(\) ends the process"),
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
    assert f"{wrong.__file__}:" in str(failed[rule])
