from __future__ import annotations

import pytest
import torch

from loopkit.inference import Sampling

LOGITS = torch.tensor([[0.5, 2.0, -1.0, 1.0, 0.0]])


def draw(sampling: Sampling, count: int = 20_000) -> torch.Tensor:
    """Return the frequencies of the tokens among draws at one position of many samples."""
    tokens = sampling.choose(LOGITS.expand(count, -1), torch.arange(count), torch.full((count,), 5))
    return tokens.bincount(minlength=5) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_have_the_probabilities_of_the_logits(temperature: float) -> None:
    expected = (LOGITS[0] / temperature).softmax(0)
    assert (draw(Sampling(temperature=temperature)) - expected).abs().max() < 0.012  # over three standard errors


@pytest.mark.parametrize(("top_p", "inside"), [(0.5, [1]), (0.62, [1, 3]), (0.88, [0, 1, 3]), (0.96, [0, 1, 3, 4])])
def test_top_p_keeps_the_smallest_sufficient_set(top_p: float, inside: list[int]) -> None:
    p = LOGITS[0].softmax(0)
    reached = p.sort(descending=True).values.cumsum(0).tolist()
    assert reached == pytest.approx([0.563, 0.770, 0.896, 0.972, 1.0], abs=1e-3)
    shares = draw(Sampling(temperature=1.0, top_p=top_p))
    chosen = torch.zeros(5)
    chosen[inside] = p[inside]
    assert (shares - chosen / chosen.sum()).abs().max() < 0.012
    assert shares[[token for token in range(5) if token not in inside]].sum() == 0


@pytest.mark.parametrize(
    ("options", "inside"),
    [
        ({"top_k": 1}, [1]),
        ({"top_k": 3}, [0, 1, 3]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.3}, [1, 3]),
        ({"min_p": 0.2}, [0, 1, 3]),
        ({"min_p": 1.0}, [1]),
        ({"top_k": 3, "min_p": 0.3}, [1, 3]),
        ({"top_k": 2, "top_p": 0.5}, [1]),
    ],
)
def test_top_k_and_min_p_keep_the_likeliest(options: dict[str, float], inside: list[int]) -> None:
    """Relative to the most likely token, the others have 0.37, 0.22, 0.14 and 0.05."""
    p = LOGITS[0].softmax(0)
    chosen = torch.zeros(5)
    chosen[inside] = p[inside]
    shares = draw(Sampling(temperature=1.0, **options))  # type: ignore[arg-type]
    assert (shares - chosen / chosen.sum()).abs().max() < 0.012
    assert shares[[token for token in range(5) if token not in inside]].sum() == 0


def test_zero_temperature_takes_the_likeliest() -> None:
    assert draw(Sampling(), 10).tolist() == [0, 1, 0, 0, 0]


def test_draws_depend_on_seed_sample_and_position() -> None:
    sampling, count = Sampling(temperature=1.0, seed=3), 300
    logits, sample, places = LOGITS.expand(count, -1), torch.arange(count), torch.arange(count) % 7
    chosen = sampling.choose(logits, sample, places)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sampling.choose(logits, sample[order], places[order]), chosen[order])
    for changed in (
        Sampling(temperature=1.0, seed=4).choose(logits, sample, places),
        sampling.choose(logits, sample + 1000, places),
        sampling.choose(logits, sample, places + 1),
    ):
        assert 0.3 < (changed != chosen).float().mean() < 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.1}, "at most 1"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"min_p": 1.5}, "min_p must be 0 to 1"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)
