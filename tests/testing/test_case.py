"""Components under test: their options, their variants, and the order of their checks."""

from __future__ import annotations

import pytest

from loopkit.registry.catalog import catalog
from loopkit.testing import ComponentNotFound, Violation, cases, check
from loopkit.testing.component_under_test import find_component
from loopkit.testing.variants import complete, variants
from tests.testing import correct, faulty


def test_required_options_are_filled_in_nested_components() -> None:
    available = catalog(False)
    assert complete(available.get("block", "transformer"), {}, available) == {
        "attention": {"type": "causal", "heads": 2}
    }
    assert complete(available.get("core", "stack"), {}, available) == {"layers": 2}
    assert complete(available.get("carry", "chain"), {}, available) == {"of": [{"type": "identity"}]}
    assert complete(available.get("core", "stack"), {"layers": 3}, available) == {"layers": 3}


def test_variants_cover_choices_and_optional_components() -> None:
    available = catalog(False)
    schema = available.get("attention", "causal")
    options_by_name = {variant.name: variant.options for variant in variants(schema, {"heads": 2}, available)}
    assert list(options_by_name) == [
        "", "kv_heads=2", "head_size=2", "qk_norm set", "qkv_bias=true", "qk_bias=true", "out_bias=true",
        'value_embeddings="all"', 'value_embeddings="even"', 'value_embeddings="odd"', "value_gate=2", "value_std=2",
    ]  # fmt: skip
    assert options_by_name["qk_norm set"]["qk_norm"] == {"type": "rmsnorm"}
    names = [variant.name for variant in variants(available.get("readout", "alpha"), {}, available)]
    assert names == ["", "alpha=0.5", 's_ref="fixed"', 's_ref="learned"', "per_loop=true"]


def test_check_is_skipped_after_failed_prerequisite() -> None:
    skipped = [case for case in cases(faulty.WrongShape) if not case.passes()]
    reasons = {case.check.name for case in skipped}
    assert {"shape", "dtype", "causal"} <= reasons
    assert "builds" not in reasons


def test_check_reports_all_violations() -> None:
    with pytest.raises(Violation, match=r"mean: schedule 'misdeclared_mean' \(.*faulty\.py:\d+\)"):
        check(faulty.MisdeclaredMean)
    check("schedule/fixed", options={"loops": 3})


@pytest.mark.parametrize("cls", [correct.RecordsAlone, correct.PlainScalar])
def test_correct_component_passes(cls: type) -> None:
    check(cls)


def test_class_inside_function_is_rejected() -> None:
    from loopkit.components.carry import Identity

    class Inner(Identity): ...

    Inner.registration = Identity.registration  # type: ignore[attr-defined]
    with pytest.raises(ComponentNotFound, match="is defined inside a function"):
        find_component(Inner)


def test_class_configures_its_checks() -> None:
    subject = find_component(faulty.KeepsState)
    faulty.KeepsState.conformance = {"options": {}, "model": {"start": "zeros"}}  # type: ignore[attr-defined]
    try:
        assert subject.surroundings == {"start": "zeros"}
    finally:
        del faulty.KeepsState.conformance  # type: ignore[attr-defined]
