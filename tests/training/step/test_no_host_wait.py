"""No operation of a micro-step makes the host wait for a device.

``meta`` has no values: whatever a host must read from a device fails there. The steps of all shipped recipes run on it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loopkit.loop import IGNORE, Batch, Loops
from loopkit.model import build_model
from loopkit.objective import build_objective
from loopkit.recipe import load_recipe
from loopkit.training.step.module import TrainingModule
from tests.e2e.commands import TINY
from tests.e2e.test_every_recipe import COMPONENTS, covering

VOCABULARY = 64
WAITS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.allclose.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.unique_consecutive.default,
    torch.ops.aten._unique2.default,
}
"""Operations whose result, or its size, the host reads."""


class NoHostWait(TorchDispatchMode):
    """Fail where the host would wait: on ``WAITS``, on an index of booleans, and on copies to the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        indices = args[1] if func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put) else ()
        masks = [index for index in indices if index is not None and index.dtype == torch.bool]
        to_host = func is torch.ops.aten._to_copy.default and str(kwargs.get("device")) == "cpu"
        assert func not in WAITS, func
        assert not masks, f"{func} with a boolean index"
        assert not to_host, "copy to the host"
        return func(*args, **kwargs)


@pytest.mark.parametrize("scored", ["all", "some"])
@pytest.mark.parametrize("name", sorted(covering(COMPONENTS)))
def test_micro_step_never_waits_for_device(name: str, scored: str) -> None:
    recipe = load_recipe(name, ("smoke",), TINY, installed=False)
    _, high = recipe.train.schedule.build().bounds
    length = recipe.data.length
    model = build_model(recipe.model, vocabulary=VOCABULARY, max_length=length, max_loops=high, device="meta")
    if model.stops:
        pytest.skip("the loops of a sequence that may stop depend on its values")
    module = TrainingModule(model, build_objective(recipe.objective).to("meta"), seed=1, precision="fp32").train()
    tokens = torch.randint(VOCABULARY, (2, length))
    labels = tokens.clone()
    if scored == "some":
        labels[:, : length // 2] = IGNORE
    batch = Batch.of(tokens, labels).to("meta")
    with NoHostWait():
        loss, _ = module(batch, Loops.fixed(high), 0, 1.0)
        loss.backward()
    assert any(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: bool((x > 0).any()),
        lambda x: torch.allclose(x, x),
        lambda x: (x > 0).nonzero(),
        lambda x: x[torch.tensor(1)],
    ],
    ids=["item", "mask", "branch", "allclose", "nonzero", "scalar index"],
)
def test_waits_are_detected(wait: Any) -> None:
    with pytest.raises((AssertionError, RuntimeError)), NoHostWait():
        wait(torch.ones(3))
