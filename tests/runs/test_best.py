"""The best checkpoint is known by a figure at a depth, and is of the run's own past."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.runs.best import BestFigure, better, figure_of, read_best, write_best

ROWS = [
    {"depth": 1, "trained": True, "loss": 3.0},
    {"depth": 4, "trained": True, "loss": 2.0, "state_norm": {"mean": 7.5}},
    {"depth": 8, "trained": False, "loss": 2.5},
]


@pytest.mark.parametrize(
    ("figure", "depth", "expected"),
    [("loss", None, (4, 2.0)), ("loss", 8, (8, 2.5)), ("state_norm.mean", None, (4, 7.5))],
)
def test_default_depth_is_the_deepest_trained(figure: str, depth: int | None, expected: tuple) -> None:
    assert figure_of(ROWS, figure, depth) == expected
    assert figure_of([ROWS[2]], "loss", None) == (8, 2.5)


@pytest.mark.parametrize(
    ("figure", "depth", "message"),
    [("lose", None, "no number 'lose' at depth 4; loss, state_norm"), ("loss", 2, "depths evaluated are 1, 4, 8")],
)
def test_missing_figure_is_named(figure: str, depth: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figure_of(ROWS, figure, depth)


def test_better_depends_on_goal_and_ties_keep_older() -> None:
    old, less, other = BestFigure(1, "loss", 4, 2.0), BestFigure(2, "loss", 4, 1.0), BestFigure(2, "loss", 8, 9.0)
    assert better(less, None, "max")
    assert better(less, old, "min")
    assert not better(less, old, "max")
    assert not better(BestFigure(2, "loss", 4, 2.0), old, "min")
    assert better(other, old, "min")  # another depth is another figure


def test_best_requires_figure_past_and_checkpoint(tmp_path: Path) -> None:
    assert read_best(tmp_path, "loss", 9) is None
    mark = BestFigure(6, "loss", 4, 2.0)
    write_best(tmp_path, mark)
    assert read_best(tmp_path, "loss", 9) is None
    (tmp_path / "step-00000006").mkdir()
    assert read_best(tmp_path, "loss", 9) == mark
    assert read_best(tmp_path, "word_ppl", 9) is None
    assert read_best(tmp_path, "loss", 5) is None
    (tmp_path / "best.json").write_text('{"step": 6')
    assert read_best(tmp_path, "loss", 9) is None
