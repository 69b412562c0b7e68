"""Gates can stop sequences in training, and cores can read gates."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.regularizer.motion import StepL2
from loopkit.components.supervision import ExitWeighted, LastN, PerLoop, Supervision, Terminal
from loopkit.errors import UserError
from loopkit.loop import Loops, Trajectory
from loopkit.model import LoopedModel, build_model
from loopkit.objective import Objective
from loopkit.recipe import RecipeError, component, load_recipe
from loopkit.registry.catalog import catalog
from loopkit.testing import NotChecked, cases
from loopkit.training.step.metrics import Counts, StepMetrics
from loopkit.training.step.module import TrainingModule
from tests.model import halting
from tests.model.test_looped import assert_same, gradients
from tests.model.tiny import LENGTH, VOCABULARY, batch, section

LOOPS = 5
KNOWN = catalog(plugins=False).with_files([Path(halting.__file__)])


def model(gate: Any = "ponder", core: Any = None, **parts: Any) -> LoopedModel:
    plan = section(init={"type": "normal", "std": 0.2}, carry="norm", **parts)
    chosen = component("gate", gate, among=KNOWN, width=16)
    plan = (
        replace(plan, gate=chosen)
        if core is None
        else replace(plan, gate=chosen, core=component("core", core, among=KNOWN))
    )
    built = build_model(plan, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=LOOPS, seed=0)
    return built.double().train()


def alone(built: LoopedModel, t: Trajectory) -> list[Trajectory]:
    """Run each sequence separately, in evaluation mode, for the loops that it ran."""
    built.eval()
    depths = t.depth.tolist()
    results = [built.run(t.batch.rows(slice(row, row + 1)), Loops.fixed(depth)) for row, depth in enumerate(depths)]
    built.train()
    return results


@pytest.mark.parametrize("gate", ["ponder", {"type": "act", "bias": -0.8}])
def test_stopped_sequences_equal_runs_of_their_depth(gate: Any) -> None:
    built, data = model(gate), batch(rows=6)
    calls: list[int] = []
    built.core.register_forward_hook(lambda _, args, output: calls.append(len(output)))
    t = built.run(data, Loops.fixed(LOOPS))
    assert len(set(t.depth.tolist())) > 1
    # ranks stay in step, and stopped sequences are not computed
    assert len(calls) == t.reached == LOOPS
    assert calls[-1] == max(sum(t.depth == LOOPS), 1)
    together = gradients(built, t.nll([LOOPS]).mean())
    runs = alone(built, t)
    for row, one in enumerate(runs):
        torch.testing.assert_close(t.state(LOOPS)[row], one.state(one.reached)[0])
    assert_same(together, gradients(built, sum(one.nll([one.reached]).mean() for one in runs) / len(runs)))


def test_stops_do_not_depend_on_the_split() -> None:
    built, data = model(), batch(rows=6)
    full = built.run(data, Loops.fixed(LOOPS), noise_key=(1, 2)).depth
    parts = [built.run(part, Loops.fixed(LOOPS), noise_key=(1, 2)) for part in data.split(1)]
    depths = [LOOPS if part.depth is None else int(part.depth) for part in parts]
    assert depths == full.tolist()
    assert full.tolist() != built.run(data, Loops.fixed(LOOPS), noise_key=(1, 3)).depth.tolist()


def test_evaluation_runs_every_loop() -> None:
    built = model({"type": "ponder", "bias": 99.0})
    assert built.run(batch(), Loops.fixed(LOOPS)).depth.tolist() == [1, 1, 1]
    assert built.eval().run(batch(), Loops.fixed(LOOPS)).depth is None


@pytest.mark.parametrize(("backprop", "valid"), [("2", False), ("4", False), ("all", True)])
def test_validate_refuses_truncated_backprop(backprop: str, valid: bool, root: Path) -> None:
    overrides = [f"plugins=[{halting.__file__}]", "model.gate=ponder", f"train.backprop={backprop}"]
    expected = r"train\.backprop: gate 'ponder' may end a sequence in any loop"
    with nullcontext() if valid else pytest.raises(RecipeError, match=expected):
        load_recipe(root / "recipes" / "wikitext_44m_raw.yaml", ["smoke"], overrides)


def test_truncated_backprop_is_refused() -> None:
    with pytest.raises(UserError, match=r"train\.backprop: model\.gate may end a sequence in any of 5 loops"):
        model().run(batch(), Loops(LOOPS, 2))


@pytest.mark.parametrize("supervision", [Terminal(), PerLoop(), LastN(n=2), ExitWeighted(entropy=0.0)])
def test_supervisions_use_only_executed_loops(supervision: Supervision) -> None:
    """The mean over sequences of each one's value, from those of the last n loops that are read, or the last state."""
    built, data = model(), batch(rows=6)
    t = built.run(data, Loops.fixed(LOOPS))
    runs = alone(built, t)
    if isinstance(supervision, LastN):
        read = [[k for k in (LOOPS - 1, LOOPS) if k <= one.reached] or [one.reached] for one in runs]
        expected = [one.nll(ks).mean() for one, ks in zip(runs, read, strict=True)]
    else:
        expected = [supervision(one).loss for one in runs]
    torch.testing.assert_close(supervision(t).loss, torch.stack(expected).mean())


def test_last_movement_is_that_of_each_sequence() -> None:
    built = model()
    t = built.run(batch(rows=6), Loops.fixed(LOOPS))
    expected = torch.stack([StepL2()(one) for one in alone(built, t)]).mean()
    torch.testing.assert_close(StepL2()(t), expected)


class Alone:
    """One process."""

    def sum(self, values: list[float]) -> list[float]:
        return values


def test_metrics_do_not_depend_on_the_micro_batch() -> None:
    """Cross-entropy and norms count the sequences that ran a loop; a loop that none ran has no value."""
    gate = {"type": "ponder", "bias": 0.5}
    objective = Objective(PerLoop(), {"ponder": component("regularizer", "ponder_cost", among=KNOWN).build()})
    module = TrainingModule(model(gate).float(), objective, seed=1, precision="fp32").train()
    data, results = batch(rows=6, unscored=2), []
    for size in (6, 2, 1):
        metrics = StepMetrics()
        for part in data.split(size):
            loops = Loops.fixed(LOOPS)
            metrics.add(module(part, loops, 3, 1.0)[1], Counts.of(part, loops))
        results.append(metrics.read(Alone(), None))
    full = results[0].means
    assert {"regularizers/ponder", "regularizers/ponder/probability"} <= set(full)
    assert full["ce/5"] is None or full["depth"] > 1
    assert 1 < full["depth"] < LOOPS
    for other in results[1:]:
        assert other.means == {name: pytest.approx(value, rel=1e-4) for name, value in full.items()}
        assert other.fault() is None


@pytest.mark.parametrize("checkpointing", [False, True])
def test_core_reads_the_gate(checkpointing: bool) -> None:
    """The value equals that of the trajectory, for the sequences that the loop computes."""
    built, data = model({"type": "linear", "reads": "readout"}, "act_core", coda=1), batch(rows=4)
    seen: list[tuple[int, Tensor, Tensor]] = []
    forward = type(built.gate).forward

    def noting(self: Any, s: Tensor, read: Any, step: Any) -> Tensor:
        seen.append((step.k, s, forward(self, s, read, step)))
        return seen[-1][-1]

    built.gate.forward = noting.__get__(built.gate)  # type: ignore[method-assign]
    built.checkpointing = checkpointing
    t = built.run(data, Loops(3, 3, torch.tensor([3, 1, 2, 3])))
    assert [(k, len(s)) for k, s, _ in seen] == [(1, 2), (2, 3), (3, 4)]
    for k, s, logits in seen:
        index = t.computed[k - 1]
        rows = torch.arange(4) if index is None else index
        full = torch.zeros(4, *s.shape[1:], dtype=s.dtype).index_copy(0, rows, s)
        z = t.read(full, k, max(3, k + 1))
        torch.testing.assert_close(logits, built.gate.linear(z).squeeze(-1)[rows])
    assert all(gradient.abs().sum() > 0 for gradient in gradients(built, t.nll([3]).mean()).values())


def test_pass_whose_loops_are_recomputed_is_released() -> None:
    """The recomputation holds the step of its loop, which must not reference the pass and its states."""
    built = model("linear", "act_core")
    built.checkpointing = True
    gc.disable()
    try:
        t = built.run(batch(), Loops.fixed(2))
        alive = weakref.ref(t)
        t.nll([2]).mean()
        del t
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("part", ["PonderGate", "ActGate", "ActCore", "PonderCost"])
def test_parts_pass_the_kit(part: str) -> None:
    surroundings = {"PonderCost": {"gate": "ponder"}, "ActCore": {"gate": "linear"}}.get(part, {})
    checked = 0
    for case in cases(getattr(halting, part), model=surroundings):
        try:
            case()
            checked += 1
        except NotChecked:
            continue
    assert checked > 5
