"""Some of the generated recipes; ``python -m tests.recipe.fuzz`` runs twenty thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.recipe.recipe import compose as real
from tests.recipe.fuzz import GROWTH, Bench, run
from tests.recipe.generated import Case


@pytest.mark.parametrize("count", [400, pytest.param(1000, marks=pytest.mark.slow)])
def test_generated_recipes_end_without_traceback(count: int, tmp_path: Path) -> None:
    result = run(count, 1, tmp_path)
    assert result["faults"] == []
    assert result["growth_bytes"] < GROWTH
    assert result["cases"] > count


def test_bench_reports_faults(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    bench, case = Bench(tmp_path), Case("valid", "loopkit: 2\n")
    assert bench.fault(case) is None

    def acts(how):  # type: ignore[no-untyped-def]
        def compose(*recipe, **options):  # type: ignore[no-untyped-def]
            how()
            return real(*recipe, **options)

        monkeypatch.setattr("loopkit.recipe.recipe.compose", compose)
        return bench.fault(case) or ""

    assert "ZeroDivisionError" in acts(lambda: 1 / 0)
    assert "something was done" in acts(lambda: (tmp_path / "CANARY").write_text("x"))
    (tmp_path / "CANARY").unlink()
    assert 'something was done: ["os.system' in acts(lambda: __import__("os").system("true"))
