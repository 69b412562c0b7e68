"""A thousand of the generated recipes; ``python -m tests.recipe.fuzz`` runs twenty thousand."""

from __future__ import annotations

from pathlib import Path

from loopkit.recipe.layers import load_layers as real
from tests.recipe.fuzz import GROWTH, Bench, run
from tests.recipe.generated import Case


def test_a_thousand_recipes_end_in_words(tmp_path: Path) -> None:
    found = run(1000, 1, tmp_path)
    assert found["faults"] == []
    assert found["growth_bytes"] < GROWTH
    assert found["cases"] > 1000


def test_the_bench_sees_what_it_looks_for(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    bench, case = Bench(tmp_path), Case("valid", "loopkit: 1\n")
    assert bench.fault(case) is None

    def acts(how):  # type: ignore[no-untyped-def]
        def load_layers(recipe):  # type: ignore[no-untyped-def]
            how()
            return real(recipe)

        monkeypatch.setattr("loopkit.recipe.recipe.load_layers", load_layers)
        return bench.fault(case) or ""

    assert "ZeroDivisionError" in acts(lambda: 1 / 0)
    assert "something was done" in acts(lambda: (tmp_path / "CANARY").write_text("x"))
    (tmp_path / "CANARY").unlink()
    assert 'something was done: ["os.system' in acts(lambda: __import__("os").system("true"))
