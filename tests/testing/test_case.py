"""Subjects, their options, and how checks depend on each other."""

from __future__ import annotations

import pytest

from loopkit.registry.catalog import catalog
from loopkit.testing import ComponentNotFound, Violation, cases, check
from loopkit.testing.component_under_test import find_component
from loopkit.testing.variants import complete, variants
from tests.testing import right, wrong


def test_required_options_are_filled_in_also_inside_of_slots() -> None:
    known = catalog(False)
    assert complete(known.get("block", "transformer"), {}, known) == {"attention": {"type": "causal", "heads": 2}}
    assert complete(known.get("core", "stack"), {}, known) == {"layers": 2}
    assert complete(known.get("carry", "chain"), {}, known) == {"of": [{"type": "identity"}]}
    assert complete(known.get("core", "stack"), {"layers": 3}, known) == {"layers": 3}


def test_variants_are_every_choice_and_every_optional_part() -> None:
    known = catalog(False)
    schema = known.get("attention", "causal")
    found = {variant.name: variant.options for variant in variants(schema, {"heads": 2}, known)}
    assert list(found) == [
        "", "kv_heads=2", "head_size=2", "qk_norm given", "qkv_bias=true", "qk_bias=true", "out_bias=true",
        'value_embeddings="all"', 'value_embeddings="even"', 'value_embeddings="odd"', "value_gate=2", "value_std=2",
    ]  # fmt: skip
    assert found["qk_norm given"]["qk_norm"] == {"type": "rmsnorm"}
    names = [variant.name for variant in variants(known.get("readout", "alpha"), {}, known)]
    assert names == ["", "alpha=0.5", 's_ref="fixed"', 's_ref="learned"', "per_loop=true"]


def test_a_check_whose_ground_is_missing_is_skipped() -> None:
    skipped = [case for case in cases(wrong.WrongShape) if not case.passes()]
    reasons = {case.check.name for case in skipped}
    assert {"shape", "dtype", "causal"} <= reasons
    assert "builds" not in reasons


def test_everything_that_is_violated_is_said_at_once() -> None:
    with pytest.raises(Violation, match=r"mean: schedule 'misdeclared_mean' \(.*wrong\.py:\d+\)"):
        check(wrong.MisdeclaredMean)
    check("schedule/fixed", options={"loops": 3})


@pytest.mark.parametrize("cls", [right.RecordsAlone, right.PlainScalar])
def test_a_right_component_passes(cls: type) -> None:
    check(cls)


def test_a_class_of_a_function_is_refused() -> None:
    from loopkit.components.carry import Identity

    class Inner(Identity): ...

    Inner.registration = Identity.registration  # type: ignore[attr-defined]
    with pytest.raises(ComponentNotFound, match="stands inside a function"):
        find_component(Inner)


def test_a_class_says_what_the_kit_needs() -> None:
    subject = find_component(wrong.KeepsState)
    wrong.KeepsState.conformance = {"options": {}, "model": {"start": "zeros"}}  # type: ignore[attr-defined]
    try:
        assert subject.around == {"start": "zeros"}
    finally:
        del wrong.KeepsState.conformance  # type: ignore[attr-defined]
