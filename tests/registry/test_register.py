"""``@register`` refuses what could not serve as a schema."""

from __future__ import annotations

import pytest

from loopkit.registry import Factory, Spec, register, use
from loopkit.registry.spec import Use


def test_registered_class_works_by_hand() -> None:
    @register("schedule", "for_a_test")
    class Mine:
        def __init__(self, *, loops: int = 3) -> None:
            self.loops = loops

    assert Mine(loops=2).loops == 2
    assert (Mine.registration.kind, Mine.registration.name) == ("schedule", "for_a_test")


@pytest.mark.parametrize(
    ("kind", "name", "traits", "message"),
    [
        ("nrom", "x", {}, "there is no kind"),
        ("norm", "Bad-Name", {}, "lower case"),
        ("norm", "x", {"speed": 1}, "unknown trait speed"),
        ("start", "x", {"noise": "always"}, "noise of start 'x' is True, False or \"training\", not 'always'"),
        ("norm", "x", {"packages": {"wandb"}}, "is a map from top-level modules to what installs them"),
        ("norm", "x", {"packages": {"a.b": "ab"}}, "is a map from top-level modules"),
    ],
)
def test_invalid_registration_is_rejected(kind: str, name: str, traits: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        register(kind, name, **traits)(object)


def test_wiring_of_another_kind_is_rejected() -> None:
    with pytest.raises(TypeError, match="'layer' is not wiring of kind 'norm'"):

        @register("norm", "for_a_test")
        class Mine:
            def __init__(self, layer: int) -> None: ...


def test_option_without_annotation_is_rejected() -> None:
    with pytest.raises(TypeError, match="'eps' has no annotation"):

        @register("norm", "for_a_test")
        class Mine:
            def __init__(self, *, eps=1.0) -> None: ...


def test_use_outside_of_a_slot_is_rejected() -> None:
    with pytest.raises(TypeError, match="not a Factory"):

        @register("norm", "for_a_test")
        class Mine:
            def __init__(self, *, eps: float = use("rmsnorm")) -> None: ...

    with pytest.raises(TypeError, match="is only allowed as a default"):
        Use("rmsnorm")()


def test_slot_default_builds_by_hand() -> None:
    class Norm: ...

    @register("mlp", "for_a_test")
    class Mine:
        def __init__(self, width: int, *, norm: Factory[Norm] = use("rmsnorm")) -> None:
            self.norm = norm(width=width)

    assert Mine(width=8).norm(__import__("torch").ones(2, 8)).shape == (2, 8)


def test_spec_passes_only_the_wiring_in_use() -> None:
    norm = Spec("norm", "rmsnorm", {"gain": False}).build(width=4)
    assert sum(p.numel() for p in norm.parameters()) == 0
    with pytest.raises(TypeError, match="layer: not wiring of kind 'norm'"):
        Spec("norm", "rmsnorm").build(layer=1)
