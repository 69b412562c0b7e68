"""A checkpoint is believed only while every byte is as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.runs.atomic import write_json
from loopkit.runs.checkpoint import (
    CheckpointProblem,
    begin_checkpoint,
    checkpoints,
    newest_checkpoint,
    prune_checkpoints,
    publish_checkpoint,
)


def save(folder: Path, step: int, keep: int = 2, besides: tuple[int, ...] = ()) -> Path:
    partial = begin_checkpoint(folder, step)
    (partial / "weights").write_text(f"weights of step {step}")
    (partial / "tokenizer").mkdir()
    (partial / "tokenizer" / "vocabulary").write_text("words")
    path = publish_checkpoint(partial, step).path
    prune_checkpoints(folder, step, keep, besides)
    return path


def test_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    assert [(c.step, c.path.name) for c in checkpoints(tmp_path)] == [(20, "step-00000020"), (30, "step-00000030")]
    assert newest_checkpoint(tmp_path) == (checkpoints(tmp_path)[-1], [])


def test_partial_checkpoint_does_not_count(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (begin_checkpoint(tmp_path, 20) / "weights").write_text("half")
    assert newest_checkpoint(tmp_path)[0].step == 10
    save(tmp_path, 20)  # what was left over is no obstacle
    assert newest_checkpoint(tmp_path)[0].step == 20


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: (path / "weights").write_text("weights of step 21"), "SHA-256 differs"),
        (lambda path: (path / "weights").write_text("weights"), "7 bytes, 18 were written"),
        (lambda path: (path / "tokenizer" / "vocabulary").unlink(), "vocabulary is missing"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: (path / "manifest.json").write_text('{"format": 1'), "manifest.json is damaged"),
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json is damaged"),
        (lambda path: (path / "manifest.json").write_text('{"format": 99, "files": {}}'), "format 99"),
    ],
)
def test_damaged_checkpoint_falls_back_to_older(tmp_path: Path, damage: object, named: str) -> None:
    save(tmp_path, 10)
    path = save(tmp_path, 20)
    damage(path)  # type: ignore[operator]
    checkpoint, damaged = newest_checkpoint(tmp_path)
    assert checkpoint.step == 10
    assert len(damaged) == 1
    assert named in damaged[0]
    assert str(path) in damaged[0]
    with pytest.raises(CheckpointProblem, match="is damaged: "):
        checkpoints(tmp_path)[-1].check()


def test_no_complete_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match=r"there is no checkpoint in .*--name"):
        newest_checkpoint(tmp_path / "absent")
    (save(tmp_path, 10) / "weights").unlink()
    with pytest.raises(CheckpointProblem, match=r"no checkpoint is complete: .*weights is missing"):
        newest_checkpoint(tmp_path)


def test_damaged_newer_checkpoints_are_not_counted(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (save(tmp_path, 20) / "weights").unlink()
    save(tmp_path, 12, keep=1)  # resumed from 10
    assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [12, 20]
    save(tmp_path, 20, keep=2)
    assert newest_checkpoint(tmp_path) == (checkpoints(tmp_path)[-1], [])


def test_named_steps_are_kept_at_any_age(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        save(tmp_path, step, keep=1, besides=(20,))
    assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [20, 40]


def test_removal_renames_before_deleting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path) -> None:
        assert path.name.startswith(".")
        raise KeyboardInterrupt

    save(tmp_path, 10)
    save(tmp_path, 20)
    with monkeypatch.context() as patched:
        patched.setattr("loopkit.runs.checkpoint.remove_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            prune_checkpoints(tmp_path, 20, 1)
    assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [20]
    save(tmp_path, 30)
    assert not list(tmp_path.glob(".step-*"))  # what was left over is gone


def test_any_changed_bit_of_the_manifest_is_detected(tmp_path: Path) -> None:
    save(tmp_path, 10)
    path = save(tmp_path, 20) / "manifest.json"
    written = path.read_bytes()
    for place in range(len(written)):
        flipped = bytearray(written)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(bytes(flipped))
        checkpoint, (damage,) = newest_checkpoint(tmp_path)
        assert checkpoint.step == 10
        assert str(path) in damage


def rewrite(checkpoint: Path, old: str, new: str) -> None:
    """Change a manifest consistently with its checksum; the first manifests did not have one."""
    listed = json.loads((checkpoint / "manifest.json").read_text().replace(old, new))
    del listed["sha256"]
    write_json(checkpoint / "manifest.json", listed)


def test_a_manifest_cannot_point_outside_of_its_folder(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    rewrite(path, "none", "none")
    assert checkpoints(tmp_path)[0].problem() is None
    save(tmp_path, 10)
    outside = tmp_path / "outside"
    outside.write_text("weights of step 10")
    rewrite(path, '"weights"', '"../outside"')
    assert "lies outside of the checkpoint" in str(checkpoints(tmp_path)[0].problem())
    save(tmp_path, 10)
    (path / "weights").unlink()
    (path / "weights").symlink_to(outside)
    assert "lies outside of the checkpoint" in str(checkpoints(tmp_path)[0].problem())


def test_later_file_is_not_part_of_the_checkpoint(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    (path / "objective.safetensors").write_text("smuggled in")
    (checkpoint,) = checkpoints(tmp_path)
    assert checkpoint.check().holds("weights")
    assert not checkpoint.holds("objective.safetensors")
