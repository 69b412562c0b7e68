"""The cache: whole or not at all, checked before use, built once however many ask."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.source import DataWarning
from loopkit.data.encoding.cache import Damaged, cache_folder, digest, entry, read_manifest
from loopkit.runs.manifest import MANIFEST


class Builder:
    """Fills a folder and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: Path) -> dict[str, Any]:
        self.times += 1
        (folder / "a.bin").write_bytes(b"some bytes")
        (folder / "b.bin").write_bytes(b"")
        return {"answer": 42}


def visible(shelf: Path) -> list[str]:
    return sorted(path.name for path in shelf.iterdir() if not path.name.endswith(".lock"))


def test_entry_is_built_once(tmp_path: Path) -> None:
    build = Builder()
    first, second = (entry(tmp_path / "shelf", "name", "thing", build) for _ in range(2))
    assert first == second
    assert second.facts == {"answer": 42}
    assert build.times == 1
    assert visible(tmp_path / "shelf") == ["name"]


def damage_size(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"some byte")


def damage_content(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"same bytes")


def damage_missing(folder: Path) -> None:
    (folder / "b.bin").unlink()


def damage_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("{")


def damage_facts(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["facts"]["answer"] = 43
    (folder / MANIFEST).write_text(json.dumps(manifest))


def damage_no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


@pytest.mark.parametrize(
    "damage", [damage_size, damage_content, damage_missing, damage_manifest, damage_facts, damage_no_manifest]
)
def test_damage_is_detected_and_repaired(tmp_path: Path, damage: Any) -> None:
    build = Builder()
    cached = entry(tmp_path, "name", "thing", build)
    damage(cached.folder)
    with pytest.raises(Damaged):
        read_manifest(cached.folder)
    with pytest.warns(DataWarning, match="the cached thing in .* is damaged .* and is built again"):
        rebuilt = entry(tmp_path, "name", "thing", build)
    assert build.times == 2
    assert rebuilt.facts == read_manifest(rebuilt.folder) == {"answer": 42}
    assert visible(tmp_path) == ["name"]


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> dict[str, Any]:
        (folder / "half").write_text("x")
        raise ValueError("the text is bad")

    with pytest.raises(ValueError, match="the text is bad"):
        entry(tmp_path, "name", "thing", fail)
    assert visible(tmp_path) == []


def test_partial_folders_are_removed(tmp_path: Path) -> None:
    code = f"""
import os, pathlib
from loopkit.data.encoding.cache import entry
def build(folder):
    (folder / "half").write_text("x")
    os._exit(9)
entry(pathlib.Path({str(tmp_path)!r}), "name", "thing", build)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert len(visible(tmp_path)) == 1
    assert entry(tmp_path, "name", "thing", Builder()).facts == {"answer": 42}
    assert visible(tmp_path) == ["name"]


def test_two_processes_build_once(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys, time
from loopkit.data.encoding.cache import entry
root = pathlib.Path({str(tmp_path)!r})
(root / f"ready-{{sys.argv[1]}}").touch()
while len(list(root.glob("ready-*"))) < 2:
    time.sleep(0.005)
def build(folder):
    (root / f"built-{{sys.argv[1]}}").touch()
    time.sleep(0.3)
    (folder / "a").write_text(sys.argv[1])
    return {{"by": sys.argv[1]}}
print(entry(root / "shelf", "name", "thing", build).facts["by"])
"""
    running = [subprocess.Popen([sys.executable, "-c", code, who], stdout=subprocess.PIPE, text=True) for who in "ab"]
    outputs = [process.communicate(timeout=60)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs[0] == outputs[1] in ("a", "b")
    assert [path.name for path in tmp_path.glob("built-*")] == [f"built-{outputs[0]}"]


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    build = Builder()
    assert entry(tmp_path, "name", "thing", build).facts == entry(tmp_path, "name", "thing", build).facts
    assert build.times == 1


def test_unwritable_cache_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"cannot be written: .*set LOOPKIT_CACHE to another folder"):
        entry(tmp_path / "file" / "shelf", "name", "thing", Builder())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_cache_serves_entries(tmp_path: Path) -> None:
    entry(tmp_path, "name", "thing", Builder())
    tmp_path.chmod(0o500)
    try:
        assert entry(tmp_path, "name", "thing", Builder()).facts == {"answer": 42}
    finally:
        tmp_path.chmod(0o700)


def test_cache_folder_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPKIT_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("LOOPKIT_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "loopkit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "loopkit"


def test_digest_ignores_key_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
