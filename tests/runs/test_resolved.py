"""A checkpoint records the providers of its components, and messages name those that are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.recipe import Recipe, RecipeError, load_recipe, yaml_text
from loopkit.registry.catalog import catalog
from loopkit.runs.checkpoint import STATE, Checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.plugin_files import changed_components, keep_plugin_files
from loopkit.runs.provenance import origins
from loopkit.runs.resolved import load_resolved, recorded_origins
from tests.registry.test_catalog import SOURCE, install


def written(folder: Path, **options: object) -> tuple[Path, Checkpoint, Recipe]:
    """The files of a run with a readout of a plugin that these tests read."""
    recipe = load_recipe("wikitext_44m_raw", overrides=["model.readout=loud"], **options)  # type: ignore[arg-type]
    file = folder / "resolved.yaml"
    file.write_text(recipe.to_yaml())
    (folder / STATE).write_text(json.dumps({"components": origins(recipe.specs.values())}))
    return file, Checkpoint(folder, 1), recipe


def test_a_missing_package_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as installed:
        installed.syspath_prepend(tmp_path)
        catalog.cache_clear()
        install(tmp_path, "mine_loud", "loud", SOURCE.format(name="loud"))
        file, checkpoint, _ = written(tmp_path)
        assert load_resolved(file, checkpoint).model.readout.name == "loud"
    catalog.cache_clear()
    assert recorded_origins(checkpoint)["readout loud"].startswith("mine_loud 1.2 (sha256 ")
    assert recorded_origins(checkpoint)["core stack"].startswith("loopkit")
    with pytest.raises(RecipeError, match=r"is called 'loud'; it comes from mine_loud 1\.2, which is not installed"):
        load_resolved(file, checkpoint)
    with pytest.raises(RecipeError, match=r"hint: pip install mine_loud==1\.2"):
        load_resolved(file, checkpoint)


def test_a_missing_file_is_named_with_its_hash(tmp_path: Path) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text(SOURCE.format(name="loud"))
    file, checkpoint, _ = written(tmp_path, plugins=[plugin])
    origin = recorded_origins(checkpoint)["readout loud"]
    assert origin.startswith(f"{plugin} (sha256 ")
    assert load_resolved(file, checkpoint, ["seed=3"]).seed == 3
    plugin.unlink()
    with pytest.raises(RecipeError, match=r"loud\.py: there is no such file") as caught:
        load_resolved(file, checkpoint)
    assert "put the file back, or pass its new path with --plugins" in str(caught.value)


def test_other_problems_stay_as_they_are(tmp_path: Path) -> None:
    file, checkpoint = tmp_path / "resolved.yaml", Checkpoint(tmp_path, 1)
    file.write_text(load_recipe("wikitext_44m_raw").to_yaml())
    assert recorded_origins(checkpoint) == {}
    with pytest.raises(RecipeError, match=r"did you mean 'raw'"):
        load_resolved(file, checkpoint, ["model.readout=rwa"])


def test_saved_recipe_skips_new_checks(tmp_path: Path) -> None:
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


def test_a_changed_plugin_file_is_warned_about(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """A moved file is unchanged; other content is reported with both hashes and the place of the saved copy."""
    plugin = tmp_path / "loud.py"
    plugin.write_text(SOURCE.format(name="loud"))
    file, checkpoint, _ = written(tmp_path, plugins=[plugin])
    load_resolved(file, checkpoint)
    moved = plugin.rename(tmp_path / "elsewhere.py")
    load_resolved(file, checkpoint, [f"plugins=[{moved}]"])
    assert not recwarn.list
    plugin.write_text(moved.read_text() + "\n# louder\n")
    (tmp_path / "plugins").mkdir()
    with pytest.warns(
        UserWarning, match=r"readout loud: trained with .*loud.py \(sha256 \w{12}\), now .*sha256"
    ) as warned:
        load_resolved(file, checkpoint)
    assert f"the files of training are in {tmp_path / 'plugins'}" in str(warned[0].message)
    plugin.unlink()
    with pytest.raises(RecipeError, match=r"put the file back, .* --plugins; the files of training are in"):
        load_resolved(file, checkpoint)


@pytest.mark.parametrize("name", ["loud.py", "renamed.py"])
def test_moved_plugin_file_is_passed_by_path(name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text(SOURCE.format(name="loud"))
    file, checkpoint, before = written(tmp_path, plugins=[plugin])
    (tmp_path / "moved").mkdir()
    moved = plugin.rename(tmp_path / "moved" / name)
    after = load_resolved(file, checkpoint, ["seed=3"], [moved])
    assert after.model.readout.schema.file == moved
    assert after.seed == 3
    assert load_resolved(file, checkpoint, (), [moved]).hash == before.hash
    assert not recwarn.list


def test_missing_plugin_file_is_read_from_the_run(tmp_path: Path) -> None:
    """The run keeps a copy of each version; the checkpoint states the one that it was trained with."""
    plugin = tmp_path / "loud.py"
    folder = RunFolder(tmp_path)
    plugin.write_text(SOURCE.format(name="loud") + "# an earlier version\n")
    keep_plugin_files(folder, written(tmp_path, plugins=[plugin])[2])
    plugin.write_text(SOURCE.format(name="loud"))
    file, checkpoint, recipe = written(tmp_path, plugins=[plugin])
    keep_plugin_files(folder, recipe)
    plugin.unlink()
    with pytest.warns(UserWarning, match=r"plugin file .*loud\.py is missing; its copy .* is used") as caught:
        loaded = load_resolved(file, checkpoint)
    assert len(caught) == 1
    assert loaded.hash == recipe.hash
    assert loaded.model.readout.schema.file.read_text() == SOURCE.format(name="loud")


@pytest.mark.parametrize(
    ("recorded", "changed"),
    [
        ("mine_loud 1.2", False),
        ("mine_loud 1.1", True),
        ("mine_loud 1.2 (sha256 0123456789ab)", True),
        ("other_package 1.2", True),
        ("loopkit 9.9", True),
    ],
)
def test_a_changed_package_is_warned_about(
    recorded: str, changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its version where no hash was noted, else by the file of its component, as an editable install changes it."""
    monkeypatch.syspath_prepend(tmp_path)
    catalog.cache_clear()
    install(tmp_path, "mine_loud", "loud", SOURCE.format(name="loud"))
    recipe = load_recipe("wikitext_44m_raw", overrides=["model.readout=loud"])
    catalog.cache_clear()
    specs = list(recipe.specs.values())
    own = {name: "loopkit 0.0.1" for name, origin in origins(specs).items() if origin.startswith("loopkit")}
    changes = changed_components(own | {"readout loud": recorded}, specs)
    assert [change.partition(":")[0] for change in changes] == (["readout loud"] if changed else [])
