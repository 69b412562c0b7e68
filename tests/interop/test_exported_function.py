"""Loops, lengths and exits of an exported model are those of the run, or a note states the difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.tokenizer.bytes import Bytes
from loopkit.interop import export_run, import_folder
from loopkit.interop.architectures import Form, ParsedConfig, published_forms
from loopkit.interop.export_plan import ExportPlan, plan_new
from loopkit.interop.published import CONFIG as CONFIG_FILE
from loopkit.interop.roundtrip import NotRepresentable, parse
from loopkit.recipe import recipe_of
from loopkit.runs import RunFolder
from tests.interop.folders import CONFIG, write
from tests.interop.test_llama import CONFIG as LLAMA
from tests.interop.test_llama import write as write_llama

HUGINN = {
    "model_type": "huginn_raven",
    "n_embd": 16,
    "n_heads": 4,
    "intermediate_size": 24,
    "n_layers_in_prelude": 1,
    "n_layers_in_recurrent_block": 2,
    "n_layers_in_coda": 1,
    "padded_vocab_size": 300,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "ouro": CONFIG,
    "huginn": HUGINN,
    "llama": LLAMA | {"vocab_size": 300},
    "nanbeige": LLAMA | {"vocab_size": 300, "model_type": "nanbeige", "num_loops": 2},
}
FIXED = [{"type": "fixed", "loops": loops} for loops in (1, 2, 5)]
RANGES = [{"type": "uniform", "min": 1, "max": 3}, {"type": "poisson", "mean": 1.1, "max": 4}]


def plan(parsed: ParsedConfig, path: Path, schedule: dict[str, Any]) -> ExportPlan:
    """Plan the export of a run of a form's model with these loops."""
    values = {
        "loopkit": 2,
        "data": {"source": "python_docs", "tokenizer": "bytes", "length": 16},
        "model": dict(parsed.model),
        "objective": {"supervision": "terminal"},
        "train": {"steps": 1, "batch": 1, "schedule": schedule},
        "evaluate": {},
    }
    recipe = recipe_of(values, path / "made.yaml")
    return plan_new(recipe, dict(recipe.values["model"]), Bytes())


def test_every_form_is_covered() -> None:
    assert CONFIGS.keys() == published_forms().keys()


@pytest.mark.parametrize("schedule", [*FIXED, *RANGES], ids=lambda schedule: "-".join(map(str, schedule.values())))
@pytest.mark.parametrize("form", published_forms().values(), ids=lambda form: form.name)
def test_loops_are_written_noted_or_refused(form: Form, schedule: dict[str, Any], tmp_path: Path) -> None:
    """A looped Llama is written as Nanbeige; a range of loops becomes its mean with a note."""
    max_loops = schedule.get("loops") or schedule["max"]
    parsed = parse(form, CONFIGS[form.name])
    result = plan(parsed, tmp_path, schedule)
    assert result.form.name == ("nanbeige" if not form.any_loops and max_loops > 1 else form.name)
    loops = parse(result.form, result.config).loops
    if schedule["type"] == "fixed":
        assert loops == schedule["loops"]
        assert not any("range of loops" in note for note in result.notes)
    else:
        assert 1 <= loops <= max_loops
        assert any(f"it runs {loops}, the mean of training" in note for note in result.notes)


@pytest.mark.parametrize("loops", [2, 5])
def test_loops_of_an_imported_llama_are_refused(loops: int, tmp_path: Path) -> None:
    """An imported run keeps its form, and a Llama runs its layers once."""
    folder = write_llama(tmp_path / "llama")
    import_folder(folder, RunFolder(tmp_path / "run"), overrides=[f"train.schedule.loops={loops}"])
    with pytest.raises(NotRepresentable, match=rf"train.schedule: {loops} loops in the run, 1 in llama"):
        export_run(tmp_path / "run", tmp_path / "out", to="llama")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("train.schedule.loops=5", "total_ut_steps", 5),
        ("data.length=128", "max_position_embeddings", 128),
        ("train.schedule={type: uniform, min: 1, max: 7}", "total_ut_steps", 4),
    ],
)
def test_changed_loops_change_the_configuration(override: str, key: str, value: int, tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"), overrides=[override])
    result = export_run(tmp_path / "run", tmp_path / "out")
    assert json.loads((tmp_path / "out" / CONFIG_FILE).read_text()) == CONFIG | {key: value}
    assert f"config.json differs from the imported one in {key}, as the recipe does" in result.notes
    assert ("range of loops" in " ".join(result.notes)) == ("uniform" in override)
    assert not result.unchanged


@pytest.mark.parametrize("changed", [False, True])
def test_published_early_exit_is_noted(changed: bool, tmp_path: Path) -> None:
    """Loopkit runs all loops, the published model stops early; an unchanged export needs no note."""
    folder = write(tmp_path / "ouro", early_exit_threshold=0.5)
    overrides = ["train.schedule.loops=5"] if changed else []
    import_folder(folder, RunFolder(tmp_path / "run"), overrides=overrides)
    result = export_run(tmp_path / "run", tmp_path / "out")
    assert any("early_exit_threshold 0.5" in note for note in result.notes) == changed
