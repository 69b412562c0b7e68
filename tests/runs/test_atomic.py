"""Whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.runs.atomic import publish_folder, remove_folder, write_json, write_text


def test_write_text_leaves_no_partial_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "one")
    write_text(tmp_path / "a", "two")
    assert (tmp_path / "a").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_invalid_json_keeps_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert (tmp_path / "a.json").read_text() == '{\n  "x": 1.5\n}\n'


def test_publishing_replaces_a_folder_of_the_same_name(tmp_path: Path) -> None:
    for content in ("old", "new"):
        partial = tmp_path / "partial"
        (partial / "deep").mkdir(parents=True)
        (partial / "deep" / "file").write_text(content)
        publish_folder(partial, tmp_path / "final")
    assert (tmp_path / "final" / "deep" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_remove_folder_keeps_link_targets(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "doomed").mkdir()
    (tmp_path / "doomed" / "link").symlink_to(tmp_path / "precious")
    remove_folder(tmp_path / "doomed")
    remove_folder(tmp_path / "never was")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (tmp_path / "precious" / "file").exists()
