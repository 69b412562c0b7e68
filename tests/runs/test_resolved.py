"""A checkpoint knows who brings its components, and says so where one is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.recipe import RecipeError, load_recipe, yaml_text
from loopkit.registry.catalog import catalog
from loopkit.runs.checkpoint import STATE, Checkpoint
from loopkit.runs.provenance import origins
from loopkit.runs.resolved import load_resolved, recorded_origins
from tests.registry.test_catalog import SOURCE, install


def written(folder: Path, **options: object) -> tuple[Path, Checkpoint]:
    """What a run with a readout of a plugin leaves, as far as it is looked at here."""
    recipe = load_recipe("wikitext_44m_raw", overrides=["model.readout=loud"], **options)  # type: ignore[arg-type]
    file = folder / "resolved.yaml"
    file.write_text(recipe.to_yaml())
    (folder / STATE).write_text(json.dumps({"components": origins(recipe.specs.values())}))
    return file, Checkpoint(folder, 1)


def test_a_missing_package_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as installed:
        installed.syspath_prepend(tmp_path)
        catalog.cache_clear()
        install(tmp_path, "mine_loud", "loud", SOURCE.format(name="loud"))
        file, checkpoint = written(tmp_path)
        assert load_resolved(file, checkpoint).model.readout.name == "loud"
    catalog.cache_clear()
    assert recorded_origins(checkpoint)["readout loud"] == "mine_loud 1.2"
    assert recorded_origins(checkpoint)["core stack"].startswith("loopkit")
    with pytest.raises(RecipeError, match=r"is called 'loud'; it comes from mine_loud 1\.2, which is not installed"):
        load_resolved(file, checkpoint)
    with pytest.raises(RecipeError, match=r"hint: pip install mine_loud==1\.2"):
        load_resolved(file, checkpoint)


def test_a_missing_file_is_named_with_its_hash(tmp_path: Path) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text(SOURCE.format(name="loud"))
    file, checkpoint = written(tmp_path, plugins=[plugin])
    origin = recorded_origins(checkpoint)["readout loud"]
    assert origin.startswith(f"{plugin} (sha256 ")
    assert load_resolved(file, checkpoint, ["seed=3"]).seed == 3
    plugin.unlink()
    with pytest.raises(RecipeError, match=r"loud\.py: cannot be read") as caught:
        load_resolved(file, checkpoint)
    assert "put the file back" in str(caught.value)


def test_other_problems_stay_as_they_are(tmp_path: Path) -> None:
    file, checkpoint = tmp_path / "resolved.yaml", Checkpoint(tmp_path, 1)
    file.write_text(load_recipe("wikitext_44m_raw").to_yaml())
    assert recorded_origins(checkpoint) == {}
    with pytest.raises(RecipeError, match=r"did you mean 'raw'"):
        load_resolved(file, checkpoint, ["model.readout=rwa"])


def test_a_run_is_read_although_a_new_one_would_be_refused(tmp_path: Path) -> None:
    """Runs made before a check existed can still be evaluated."""
    values = dict(load_recipe("wikitext_44m_raw", ["smoke"]).values)
    values["train"] = values["train"] | {"deepspeed": {"zero_optimisation": {"stage": 2}}}
    values["evaluate"] = values["evaluate"] | {"stride": 4096}
    file = tmp_path / "resolved.yaml"
    file.write_text(yaml_text(values))
    checkpoint = Checkpoint(tmp_path, 0)
    with pytest.raises(RecipeError, match="zero_optimisation"):
        load_recipe(file)
    assert load_resolved(file, checkpoint).train.deepspeed == {"zero_optimisation": {"stage": 2}}
    assert load_resolved(file, checkpoint, ["evaluate.stride=8"]).evaluate.stride == 8
    with pytest.raises(RecipeError, match=r"evaluate\.stride"):
        load_resolved(file, checkpoint, ["evaluate.batch=2"])
