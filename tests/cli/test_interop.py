"""``loopkit import`` and ``loopkit export`` from the command line, with their error messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import HfApi

from loopkit.cli import main
from tests.interop.folders import assert_same_model, with_tokenizer, write


def loopkit(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="loopkit")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOPKIT_CACHE", str(tmp_path / "cache"))
    return with_tokenizer(write(tmp_path / "tiny-ouro", shards=2))


def test_import_evaluate_and_export(folder: Path, tmp_path: Path) -> None:
    done = loopkit("import", folder)
    assert done.exit_code == 0, done.output
    assert "ouro: " in done.output
    assert "evaluate it: loopkit eval runs/tiny-ouro" in done.output

    done = loopkit("eval", "tiny-ouro", "--depths", "1,3,5", "--max-tokens", "3000", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert [row["depth"] for row in result["depths"]] == [1, 3, 5]
    assert [row["trained"] for row in result["depths"]] == [True, True, False]
    assert (tmp_path / "runs" / "tiny-ouro" / "report.md").is_file()

    done = loopkit("export", "tiny-ouro", "--to", "hf", "--out", "back")
    assert done.exit_code == 0, done.output
    assert "tensors and configuration equal the imported folder" in done.output
    assert_same_model(tmp_path / "back", folder)


def test_json_output(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"")
    facts = json.loads(loopkit("import", folder, "--out", "runs/a", "--json").output)
    assert (facts["form"], facts["loops"], facts["left_out"]) == ("ouro", 3, ["pytorch_model.bin"])
    out = json.loads(loopkit("export", "a", "--out", "back", "--dtype", "fp32", "--json").output)
    assert (out["form"], out["types"], out["unchanged"], out["step"]) == ("ouro", ["float32"], False, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "absent"], "error: absent does not exist"),
        (["import", "tiny-ouro", "--out", "tiny-ouro"], "already exists; give the imported model another folder"),
        (["import", "tiny-ouro", "--tokenizer", "byts"], "no tokenizer is called 'byts'"),
        (["import", "tiny-ouro", "--set", "model.width=8"], "config.json determines the model"),
        (["import", "."], "has no config.json"),
        (["export", "absent", "--out", "back"], "no run is named 'absent'"),
        (["export", "absent", "--out", "tiny-ouro"], "tiny-ouro already exists"),
        (["export", "absent"], "Missing option '--out'"),
        (["export", "absent", "--out", "back", "--push", "model"], "the owner is missing; use OWNER/NAME"),
        (["export", "absent", "--out", "back", "--push", "a/b/c"], "not the name of a repository"),
        (["export", "absent", "--to", "gguf", "--out", "back", "--push", "a/b"], "--push uploads folders"),
        (
            ["export", "absent", "--to", "onnx", "--out", "back"],
            "'onnx' is not one of 'hf', 'ouro', 'huginn', 'llama', 'nanbeige', 'gguf'",
        ),
    ],
)
def test_user_errors_have_a_message(folder: Path, words: list[str], message: str) -> None:
    done = loopkit(*words)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
    assert not Path("back").exists()
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_push_without_access_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: HfApi) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(HfApi, "whoami", refuse)
    loopkit("import", folder)
    done = loopkit("export", "tiny-ouro", "--out", "back", "--push", "me/model")
    assert done.exit_code == 2
    assert "cannot be reached (no route to host). Log in with hf auth login" in done.output
    assert not Path("back").exists()


def test_push_uploads_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(HfApi, "whoami", lambda self: {"name": "me"})
    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo, **options: calls.append((repo, options)))

    def upload(self: HfApi, *, folder_path: Path, repo_id: str, commit_message: str) -> object:
        calls.append((repo_id, sorted(path.name for path in folder_path.iterdir())))
        if repo_id == "me/full":
            raise OSError("quota")
        return type("Commit", (), {"commit_url": "https://hub/commit"})()

    monkeypatch.setattr(HfApi, "upload_folder", upload)
    loopkit("import", folder)
    done = loopkit("export", "tiny-ouro", "--out", "back", "--push", "me/model")
    assert "uploaded: https://hub/commit" in done.output
    assert calls[0] == ("me/model", {"private": True, "exist_ok": True})
    assert {"config.json", "model.safetensors"} <= set(calls[1][1])
    done = loopkit("export", "tiny-ouro", "--out", "kept", "--push", "me/full")
    assert done.exit_code == 2
    assert "the upload failed (quota). kept is complete; upload it with hf upload me/full kept" in done.output
    assert Path("kept/config.json").is_file()
