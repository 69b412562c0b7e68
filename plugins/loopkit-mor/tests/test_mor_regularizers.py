"""The losses of a router: against scalar references."""

from __future__ import annotations

import math

import pytest
import torch
from loopkit_mor import RouterBalance, RouterZ
from mor_models import LENGTH, LOOPS, build, by_tokens, tokens

from loopkit import load_recipe
from loopkit.loop import Batch, Loops
from loopkit.recipe import RecipeError


@torch.no_grad()
def test_expert_choice_losses_equal_reference() -> None:
    t = build().train().run(tokens(), Loops.fixed(LOOPS))
    terms, squares = [], []
    for record in t.records:
        for row in range(3):
            for i in range(LENGTH):
                if record["router_candidates"][row, i]:
                    z, chosen = float(record["router_logits"][row, i]), bool(record["router_chosen"][row, i])
                    squares.append(z * z)
                    p = 1 / (1 + math.exp(-z))
                    terms.append(-math.log(p if chosen else 1 - p))
    first = 3 * LENGTH  # the first loop keeps all tokens and does not contribute
    assert len(terms) == 3 * (12 + 12 + 6)
    assert float(RouterBalance()(t)) == pytest.approx(sum(terms[first:]) / len(terms[first:]), rel=1e-5)
    assert float(RouterZ()(t)) == pytest.approx(sum(squares) / len(squares), rel=1e-5)


@torch.no_grad()
def test_token_choice_losses_equal_reference() -> None:
    model = by_tokens().train()
    t = model.run(tokens(), Loops.fixed(LOOPS))
    z = (t.e @ model.core.router.weight.T).flatten(0, 1)
    p, n = z.softmax(-1), len(z)
    share = [sum(1 for row in p if int(row.argmax()) == i) / n for i in range(LOOPS)]
    mean = [sum(float(row[i]) for row in p) / n for i in range(LOOPS)]
    assert float(RouterBalance()(t)) == pytest.approx(
        3 * sum(f * q for f, q in zip(share, mean, strict=True)), rel=1e-5
    )
    expected = sum(math.log(sum(math.exp(v) for v in row.tolist())) ** 2 for row in z) / n
    assert float(RouterZ()(t)) == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
def test_balance_ranges_from_one_to_num_loops() -> None:
    model = by_tokens()
    t = model.run(tokens(), Loops.fixed(LOOPS))
    for record in t.records:
        record["router_logits"] = torch.tensor([50.0, 0.0, 0.0]).expand(3, LENGTH, 3)
    assert float(RouterBalance()(t)) == pytest.approx(3)
    for record in t.records:
        record["router_logits"] = (50 * torch.eye(3)).repeat(3, LENGTH // 3, 1)
    assert float(RouterBalance()(t)) == pytest.approx(1)


def test_padding_does_not_change_losses() -> None:
    batch = tokens()
    expected = [part(by_tokens().run(batch, Loops.fixed(LOOPS))) for part in (RouterBalance(), RouterZ())]
    pad = torch.zeros(3, 5, dtype=torch.int64)
    positions = torch.cat([batch.positions, pad + 2**30], 1)
    padded = Batch(torch.cat([batch.tokens, pad], 1), torch.cat([batch.labels, pad - 100], 1), positions, batch.sample)
    actual = [part(by_tokens().run(padded, Loops.fixed(LOOPS))) for part in (RouterBalance(), RouterZ())]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("part", [RouterBalance(), RouterZ()])
def test_gradient_reaches_the_router(part: RouterBalance | RouterZ) -> None:
    for model in (build().train(), by_tokens().train()):
        value = part(model.run(tokens(), Loops.fixed(LOOPS)))
        assert value.dtype == torch.float32
        value.backward()
        assert model.core.router.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["router_balance", "router_z"])
def test_recipe_without_router_is_rejected(name: str) -> None:
    removed = "router_z" if name == "router_balance" else "router_balance"
    with pytest.raises(RecipeError) as caught:
        load_recipe("wikitext_mor", ["smoke"], ["model.core=2", f"objective.regularizers.{removed}=false"])
    assert f"regularizer '{name}' needs routing, which nothing in this recipe provides" in str(caught.value)
    assert "choose core 'token_routed'" in str(caught.value)


def test_trajectory_without_routing_is_rejected() -> None:
    t = build().run(tokens(), Loops.fixed(2))
    for record in t.records:
        record.clear()
    with pytest.raises(ValueError, match="need a core with a router"):
        RouterZ()(t)
