"""Parents, profiles and overrides: how layers meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.recipe import RecipeError, load_recipe
from loopkit.recipe.layers import override
from tests.recipe.conftest import BASE


def values(file: Path, *overrides: str, profiles: tuple[str, ...] = ()) -> dict:
    return dict(load_recipe(file, profiles, overrides).values)


def test_child_of_three_lines_resolves(write) -> None:
    write()
    child = write("loopkit: 2\nextends: mine.yaml\nmodel: {readout: raw}\n", "child.yaml")
    recipe = load_recipe(child)
    assert recipe.name == "child"
    assert recipe.model.readout.name == "raw"
    assert recipe.model.width == 32


def test_maps_merge_and_lists_replace(write) -> None:
    inherited = "trainable: [a, b], deepspeed: {comms_logger: {enabled: true}}, steps"
    file = write(BASE.replace("steps", inherited))
    got = values(file, "train.trainable=[c]", "train.deepspeed.wall_clock_breakdown=false")
    assert got["train"]["trainable"] == ["c"]
    assert got["train"]["deepspeed"] == {"comms_logger": {"enabled": True}, "wall_clock_breakdown": False}


def test_new_type_drops_inherited_options(write) -> None:
    file = write()
    sampled = "train.schedule={type: lognormal, mu: 1.0, sigma: 0.5, max: 8}"
    assert values(file, sampled)["train"]["schedule"]["sigma"] == 0.5
    other = write(BASE.replace("schedule: 2", "schedule: {type: lognormal, mu: 1.0, max: 8}"), "other.yaml")
    got = values(other, "train.schedule={type: fixed, loops: 3}")["train"]["schedule"]
    assert got == {"type": "fixed", "loops": 3}
    assert values(other, "train.schedule.max=5")["train"]["schedule"]["mu"] == 1.0


def test_same_type_keeps_inherited_options(write) -> None:
    got = values(write(), "model.block.attention={type: causal, dropout: 0.1}")
    assert got["model"]["block"]["attention"]["heads"] == 2


def test_short_forms(write) -> None:
    got = values(write(), "model.prelude=1", "model.head=untied", "model.core=3", "train.lr=3e-4", "train.checkpoint=7")
    assert got["model"]["prelude"]["layers"] == 1
    assert got["model"]["head"]["tied"] is False
    assert got["model"]["core"] == {"type": "stack", "layers": 3}
    assert got["train"]["lr"]["peak"] == 3e-4
    assert got["train"]["checkpoint"]["every"] == 7


def test_slot_map_entries_are_added_changed_and_removed(write) -> None:
    two = "regularizers: {norm_penalty: {weight: 0.1}, scale_anchor: {}}"
    file = write(BASE.replace("per_loop}", f"per_loop, {two}}}"))
    got = values(file, "objective.regularizers.norm_penalty.weight=0.2", "objective.regularizers.scale_anchor=false")
    assert list(got["objective"]["regularizers"]) == ["norm_penalty"]
    assert got["objective"]["regularizers"]["norm_penalty"]["weight"] == 0.2
    twice = "objective.regularizers={again: {type: norm_penalty, weight: 1.0}}"
    assert values(write(), twice)["objective"]["regularizers"]["again"]["type"] == "norm_penalty"


def test_last_layer_decides_between_alternatives(write) -> None:
    file = write()
    assert values(file, "train.epochs=2")["train"]["steps"] is None
    with pytest.raises(RecipeError, match="epochs and steps exclude each other"):
        load_recipe(write("loopkit: 2\nextends: mine.yaml\ntrain: {epochs: 1, steps: 2}\n", "two.yaml"))


def test_profiles_apply_in_order_after_parents(write) -> None:
    write(
        "loopkit: 2\nextends: root.yaml\nmodel: {width: 64}\n"
        "profiles: {mini: {model: {width: 16}}, tiny: {model: {core: 1}}}\n",
        "mid.yaml",
    )
    write(BASE + "profiles: {mini: {model: {width: 8}, train: {steps: 1}}}\n", "root.yaml")
    leaf = write("loopkit: 2\nextends: mid.yaml\nmodel: {readout: raw}\n", "leaf.yaml")
    assert values(leaf)["model"]["width"] == 64
    got = values(leaf, profiles=("mini", "tiny"))
    assert (got["model"]["width"], got["train"]["steps"], got["model"]["core"]["layers"]) == (16, 1, 1)
    assert load_recipe(leaf, ["mini"]).name == "leaf-mini"
    assert values(leaf, "model.width=48", profiles=("mini",))["model"]["width"] == 48
    with pytest.raises(RecipeError, match="has no profile 'mnii'") as caught:
        load_recipe(leaf, ["mnii"])
    assert "did you mean 'mini'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b=c", ("a", "b"), "c"),
        ("lr=2e-5", ("lr",), 2e-5),
        ("a=b=c", ("a",), "b=c"),
        ("a=", ("a",), ""),
        ("a=null", ("a",), None),
        ("a=[1, {b: 2}]", ("a",), [1, {"b": 2}]),
        ("a='3'", ("a",), "3"),
        (" a =1", ("a",), 1),
        ("a=no", ("a",), "no"),
    ],
)
def test_overrides_are_read_as_yaml(text: str, path: tuple[str, ...], value: object) -> None:
    node = override(text)
    for part in path:
        node = node.value[part]
    assert node.plain() == value


@pytest.mark.parametrize(
    "text", ["a", "=1", "a..b=1", ".a=1", "a.=1", "extends=x", "profiles.mini.seed=1", "a=[1", "a=*x", "a=!!set {}"]
)
def test_malformed_overrides_are_rejected(text: str) -> None:
    with pytest.raises(RecipeError, match="--set"):
        override(text)


def test_override_sets_a_list_item(write) -> None:
    file = write()
    carry = "model.carry={type: chain, of: [norm, damping]}"
    got = values(file, carry, "model.carry.of.1={type: clamp}")
    assert [item["type"] for item in got["model"]["carry"]["of"]] == ["norm", "clamp"]
    with pytest.raises(RecipeError, match="no entry 5"):
        load_recipe(file, overrides=[carry, "model.carry.of.5=norm"])


def test_paths_are_relative_to_their_file(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    file = write("loopkit: 2\nextends: ../mine.yaml\ntrain: {start_from: weights}\n", "sub/child.yaml")
    write()
    monkeypatch.chdir(tmp_path)
    assert load_recipe(file).train.start_from == tmp_path / "sub" / "weights"
    assert load_recipe(file, overrides=["train.start_from=weights"]).train.start_from == tmp_path / "weights"
    assert Path.cwd() == tmp_path


def test_extends_follows_and_checks_parents(write) -> None:
    one = write("loopkit: 2\nextends: two.yaml\n", "one.yaml")
    write("loopkit: 2\nextends: one.yaml\n", "two.yaml")
    with pytest.raises(RecipeError, match="circular extends: one -> two -> one"):
        load_recipe(one)
    with pytest.raises(RecipeError, match=r"extends: there is no file .*gone\.yaml"):
        load_recipe(write("loopkit: 2\nextends: gone.yaml\n", "orphan.yaml"))
    shipped = load_recipe(write("loopkit: 2\nextends: wikitext_44m_raw\n", "heir.yaml"))
    assert shipped.model.width == 512
    with pytest.raises(RecipeError, match="no recipe is called 'wikitext_44m_rwa'"):
        load_recipe("wikitext_44m_rwa")


def test_resolved_recipe_is_a_fixed_point(write) -> None:
    recipe = load_recipe("wikitext_44m_raw", ["mini"], ["train.lr.peak=1e-8", "description='no'"])
    again = load_recipe(write(recipe.to_yaml(), "resolved.yaml"))
    assert again.values == recipe.values
    assert again.to_yaml() == recipe.to_yaml()
    assert again.hash == recipe.hash


def test_new_default_keeps_resolved_recipe(write) -> None:
    assert "dropout: 0.0" in load_recipe(write()).to_yaml()


def test_every_value_has_an_origin(write) -> None:
    write()
    child = write("loopkit: 2\nextends: mine.yaml\nmodel: {readout: raw}\n", "child.yaml")
    origins = load_recipe(child, overrides=["seed=3"]).origins
    assert str(origins["model", "readout", "type"]).endswith("child.yaml:3")
    assert str(origins["model", "width"]).endswith("mine.yaml:4")
    assert str(origins["seed",]) == "--set seed=3"
    assert origins["train", "clip"].layer == "default"


def test_folder_does_not_hide_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wikitext_44m_raw").mkdir()
    assert load_recipe("wikitext_44m_raw").name == "wikitext_44m_raw"
    (tmp_path / "nothing_of_that_name").mkdir()
    with pytest.raises(RecipeError, match="is a folder"):
        load_recipe("nothing_of_that_name")


PLAIN_BLOCK = """\
from loopkit.components.block import Block
from loopkit.registry import register

@register("block", "plain")
class Plain(Block):
    '''A block without attention.'''
"""


def test_null_removes_options_of_another_block(write) -> None:
    write(PLAIN_BLOCK, "plain.py")
    write(BASE + "profiles: {mini: {model: {width: 16, block: {attention: {heads: 4}}}}}\n")
    child = "extends: mine.yaml\nplugins: [plain.py]\nmodel: {block: plain}\n"
    file = write(child, "child.yaml")
    load_recipe(file)
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, ["mini"])
    way_out = "profiles: {mini: {model: {block: {attention: null}}}}"
    assert "model.block.attention: block 'plain' has no option 'attention'" in str(caught.value)
    assert f"remove it here with {way_out}" in str(caught.value)
    mended = load_recipe(write(f"{child}{way_out}\n", "fixed.yaml"), ["mini"])
    assert (mended.model.width, mended.model.block.name) == (16, "plain")
    assert load_recipe(file, ["mini"], ["model.block.attention=null"]).values == {
        **mended.values,
        "plugins": [str(file.parent / "plain.py")],
    }


def test_null_for_an_unset_key_is_a_problem(write) -> None:
    with pytest.raises(RecipeError, match=r"model\.blok: model has no option 'blok'"):
        load_recipe(write(), overrides=["model.blok=null"])
