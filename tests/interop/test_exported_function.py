"""What an exported model computes: its loops, lengths and exits are those of the run, or the export says otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.tokenizer.bytes import Bytes
from loopkit.interop import export_run, import_folder
from loopkit.interop.architectures import Form, Reading, forms
from loopkit.interop.roundtrip import NotRepresentable, reading_of
from loopkit.interop.target import CONFIG as CONFIG_FILE
from loopkit.interop.target import Target, new_folder
from loopkit.recipe import recipe_of
from loopkit.runs import RunFolder
from tests.interop.folders import CONFIG, write
from tests.interop.test_llama import CONFIG as LLAMA

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
CONFIGS: dict[str, dict[str, Any]] = {"ouro": CONFIG, "huginn": HUGINN, "llama": LLAMA | {"vocab_size": 300}}
FIXED = [{"type": "fixed", "loops": loops} for loops in (1, 2, 5)]
RANGES = [{"type": "uniform", "min": 1, "max": 3}, {"type": "poisson", "mean": 1.1, "max": 4}]


def exported(reading: Reading, path: Path, schedule: dict[str, Any]) -> Target:
    """What a run of a form's model with these loops would be exported as."""
    values = {
        "loopkit": 2,
        "data": {"source": "python_docs", "tokenizer": "bytes", "length": 16},
        "model": dict(reading.model),
        "objective": {"supervision": "terminal"},
        "train": {"steps": 1, "batch": 1, "schedule": schedule},
        "evaluate": {},
    }
    recipe = recipe_of(values, path / "made.yaml")
    return new_folder(recipe, dict(recipe.values["model"]), Bytes(), "F32")


def test_every_form_has_a_configuration_here() -> None:
    assert CONFIGS.keys() == forms().keys()


@pytest.mark.parametrize("schedule", [*FIXED, *RANGES], ids=lambda schedule: "-".join(map(str, schedule.values())))
@pytest.mark.parametrize("form", forms().values(), ids=lambda form: form.name)
def test_loops_are_written_noted_or_refused(form: Form, schedule: dict[str, Any], tmp_path: Path) -> None:
    """A form with one number of loops is refused to any other run; a range of loops becomes its mean with a note."""
    most = schedule.get("loops") or schedule["max"]
    reading = reading_of(form, CONFIGS[form.name])
    if not form.any_loops and most > 1:
        with pytest.raises(
            NotRepresentable, match=rf"train.schedule: .*{most} loops here, and llama (has|always runs)"
        ):
            exported(reading, tmp_path, schedule)
        return
    target = exported(reading, tmp_path, schedule)
    assert target.form.name == form.name
    runs = reading_of(form, target.values[CONFIG_FILE]).loops
    if schedule["type"] == "fixed":
        assert runs == schedule["loops"]
        assert not any("range of loops" in note for note in target.notes)
    else:
        assert 1 <= runs <= most
        assert any(f"it runs {runs}, the mean of training" in note for note in target.notes)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("train.schedule.loops=5", "total_ut_steps", 5),
        ("data.length=128", "max_position_embeddings", 128),
        ("train.schedule={type: uniform, min: 1, max: 7}", "total_ut_steps", 4),
    ],
)
def test_a_returned_folder_states_changed_loops(override: str, key: str, value: int, tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"), overrides=[override])
    made = export_run(tmp_path / "run", tmp_path / "out")
    assert json.loads((tmp_path / "out" / CONFIG_FILE).read_text()) == CONFIG | {key: value}
    assert f"config.json is not the imported one: {key} changed with the recipe" in made.notes
    assert ("range of loops" in " ".join(made.notes)) == ("uniform" in override)
    assert not made.unchanged


@pytest.mark.parametrize("changed", [False, True])
def test_early_exit_of_the_published_model_is_noted(changed: bool, tmp_path: Path) -> None:
    """Loopkit runs all loops, the published model stops early: said unless the folder is given back as it came."""
    folder = write(tmp_path / "ouro", early_exit_threshold=0.5)
    overrides = ["train.schedule.loops=5"] if changed else []
    import_folder(folder, RunFolder(tmp_path / "run"), overrides=overrides)
    made = export_run(tmp_path / "run", tmp_path / "out")
    assert any("early_exit_threshold 0.5" in note for note in made.notes) == changed
