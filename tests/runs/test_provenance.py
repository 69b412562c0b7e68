"""What is recorded of a run."""

from __future__ import annotations

from pathlib import Path

from loopkit.registry import Spec
from loopkit.runs.atomic import write_json
from loopkit.runs.provenance import describe, end_session, machine, origins, read_provenance, versions


def test_record_has_versions_machine_and_command(tmp_path: Path) -> None:
    record = describe(
        recipe="r", recipe_hash="abc", components={}, torch={"device": "cpu"}, command=["loopkit", "train"]
    )
    assert record["packages"]["numpy"]
    assert record["machine"]["cores"] >= 1
    assert record["machine"]["memory_bytes"] > 2**20
    assert record["machine"]["processor"]
    assert record["sessions"][0]["command"] == ["loopkit", "train"]
    write_json(tmp_path / "p.json", record)
    end_session(tmp_path / "p.json", "finished", 20)
    ended = read_provenance(tmp_path / "p.json")["sessions"][0]
    assert (ended["status"], ended["from_step"], ended["to_step"]) == ("finished", 0, 20)
    assert ended["ended"] >= ended["started"]


def test_absent_packages_are_left_out() -> None:
    assert set(versions(["numpy", "no-such-package-anywhere"])) == {"numpy"}


def test_components_are_traced_to_their_package() -> None:
    specs = [Spec("schedule", "fixed", {"loops": 2}), Spec("lr", "cosine")]
    result = origins(specs)
    assert set(result) == {"schedule fixed", "lr cosine"}
    assert all(origin.startswith("loopkit") for origin in result.values())


def test_the_machine_is_that_of_this_process() -> None:
    import os

    assert machine()["cores"] <= (os.cpu_count() or 1)
