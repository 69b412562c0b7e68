"""Every kind: it builds with every choice and, if it is a module, on the meta device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from loopkit.loop import Loops
from loopkit.recipe import RecipeError, component
from loopkit.registry import KINDS, MissingPackage
from loopkit.registry.spec import Spec
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import BLOCK, LENGTH, LOOPS, VOCABULARY, WIDTH, build_model_around, random_batch
from loopkit.testing.harness import compute_logits as logits_of
from loopkit.testing.rules import ALL_KINDS, MODULES, MissingDependency, Violation, report_as_violation, rule
from loopkit.testing.variants import Unguessable, Variant


def wiring(subject: ComponentUnderTest) -> dict[str, Any]:
    """The wiring that a parent passes to a component of this kind, by name."""
    position = Spec("position", "none").build()

    def make_block() -> Any:
        block = component("block", subject.surroundings.get("block", BLOCK), among=subject.catalog, width=WIDTH)
        depth = {"layer": 0, "max_loops": LOOPS, "num_layers": 2}
        return block.build(width=WIDTH, position=position, vocabulary=VOCABULARY, **depth)

    values = {
        "width": WIDTH,
        "position": position,
        "layer": 1,
        "max_loops": LOOPS,
        "num_layers": 2,
        "streams": 0,
        "max_length": LENGTH,
        "vocabulary": VOCABULARY,
        "norm": lambda: Spec("norm", "rmsnorm").build(width=WIDTH),
        "block": make_block,
    }
    return {name: values[name] for name in KINDS[subject.schema.kind].wiring}


@rule("builds", ALL_KINDS, after=("signature",))
def builds(subject: ComponentUnderTest) -> None:
    """It builds at its defaults, with every declared choice, and with each optional part."""
    try:
        variants = subject.variants
    except Unguessable as error:
        raise Violation("the kit cannot build it", str(error)) from None
    for variant in variants:
        _build(subject, variant)


def _build(subject: ComponentUnderTest, variant: Variant) -> None:
    where = f" with {variant.name}" if variant.name else " at its defaults"
    try:
        subject.build(variant.options, **wiring(subject))
    except MissingPackage as error:
        raise MissingDependency(str(error)) from None
    except RecipeError as error:
        raise Violation(f"its own options are rejected{where}", str(error)) from error
    except (ValueError, OSError) as error:
        if variant.strict:
            hint = "every declared choice must work; restrict the option, or set what it needs with --loopkit-options"
            raise Violation(f"it does not build{where}", f"{type(error).__name__}: {error}", hint) from error
    except Exception as error:
        raise Violation(f"it does not build{where}", f"{type(error).__name__}: {error}") from error


@rule("meta", MODULES, after=("builds",))
def meta(subject: ComponentUnderTest) -> None:
    """It builds on the meta device, which holds shapes without values."""
    hint = (
        "loopkit builds every model on meta first: compute no values in the constructor, set them in reset_parameters()"
    )
    for variant in subject.variants:
        if not variant.strict:
            continue
        with report_as_violation(f"it does not build on meta{_with(variant)}", hint), torch.device("meta"):
            built = subject.build(variant.options, **wiring(subject))
        assert isinstance(built, nn.Module)
        _check_registered(built)
        _check_on_meta(built, variant)


def _with(variant: Variant) -> str:
    return f" with {variant.name}" if variant.name else ""


def _check_registered(built: nn.Module) -> None:
    """Reject tensors that are neither parameters nor buffers: they stay behind when a model moves."""
    for path, module in built.named_modules():
        names = [name for name, value in vars(module).items() if isinstance(value, Tensor)]
        if names:
            name = ".".join(filter(None, (path, names[0])))
            hint = f"self.register_buffer({names[0]!r}, ...), with its values set in reset_parameters()"
            raise Violation(f"its tensor '{name}' is neither a parameter nor a buffer", hint=hint)


def _check_on_meta(built: nn.Module, variant: Variant) -> None:
    real = [name for name, value in [*built.named_parameters(), *built.named_buffers()] if not value.is_meta]
    if real:
        hint = "create tensors on the default device: torch.empty(...) without device=, not from numpy or .item()"
        raise Violation(f"it does not build on meta{_with(variant)}: '{real[0]}' has memory", hint=hint)


@rule("runs on meta", MODULES, after=("in place",))
def runs_on_meta(subject: ComponentUnderTest) -> None:
    """A model with it runs on the meta device, where `plan` counts its cost."""
    hint = "do not read values: no .item(), no Python branch on a tensor, no boolean indexing"
    with report_as_violation("a model with it does not run on meta", hint), torch.no_grad():
        model = build_model_around(subject, device="meta")
        shape = logits_of(model, random_batch().to("meta"), Loops.fixed(1)).shape
    if shape[0] != 1 or shape[-1] != VOCABULARY:
        raise Violation("a model with it returns logits of a wrong shape on meta", str(list(shape)))
