"""Diagnostics, hover and completion of recipes in an editor: the YAML language server with ``loopkit schema``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopkit.recipe.authoring.editor_schema import editor_schema
from loopkit.registry.catalog import catalog
from tests.docs import language_server
from tests.docs.language_server import Server

pytestmark = pytest.mark.e2e

RECIPE = """# yaml-language-server: $schema=loopkit.schema.json
loopkit: 2
extends: wikitext_44m_raw
model: {readout: {type: alpha, alpha: 0.5}}
train:
  schedule: {type: uniform, min: 4, max: 8}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schema, which includes the component of a plugin."""
    folder = tmp_path_factory.mktemp("editor")
    (folder / "mine.py").write_text(
        'from loopkit.registry import register\n\n\n@register("readout", "mine")\nclass Mine:\n'
        '    """A readout of my own.\n\n    Args:\n        power: How much of the scale is taken away.\n    """\n\n'
        "    def __init__(self, *, power: float = 0.5) -> None: ...\n"
    )
    schema = editor_schema(catalog(False).with_files([folder / "mine.py"]))
    (folder / "loopkit.schema.json").write_text(json.dumps(schema))
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    words = language_server.command()
    if words is None:
        pytest.skip("no YAML language server: npm install yaml-language-server, its script in YAML_LANGUAGE_SERVER")
    with Server(words) as server:
        yield server


def diagnose(server: Server, folder: Path, name: str, text: str) -> dict[int, list[str]]:
    """Return messages by line, starting at 1."""
    file = folder / f"{name}.yaml"
    file.write_text(text)
    server.open(file)
    messages: dict[int, list[str]] = {}
    for item in server.diagnostics(file):
        messages.setdefault(item["range"]["start"]["line"] + 1, []).append(item["message"])
    return messages


def test_valid_recipe_has_no_diagnostics(server: Server, folder: Path) -> None:
    assert diagnose(server, folder, "right", RECIPE) == {}


@pytest.mark.parametrize(
    ("name", "right", "wrong", "line", "word"),
    [
        ("section", "train:", "trian:", 5, "trian"),
        ("option", "max: 8", "maxx: 8", 6, "maxx"),
        ("component", "type: alpha", "type: alhpa", 4, "alpha"),
        ("type", "min: 4", "min: four", 6, ""),
    ],
)
def test_mistake_is_marked_in_its_line(
    server: Server, folder: Path, name: str, right: str, wrong: str, line: int, word: str
) -> None:
    messages = diagnose(server, folder, name, RECIPE.replace(right, wrong))
    assert list(messages) == [line]
    assert any(word in message for message in messages[line])


def test_hover_and_completion_include_plugins(server: Server, folder: Path) -> None:
    file = folder / "hover.yaml"
    file.write_text(RECIPE + "objective: {supervision: per_loop}\nseed: 1\n")
    server.open(file)
    server.diagnostics(file)
    lines = file.read_text().splitlines()
    at = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 5, "character": lines[5].index("max") + 1}}
    hover = server.request("textDocument/hover", at)
    assert "Most loops" in json.dumps(hover)
    file = folder / "complete.yaml"
    file.write_text("# yaml-language-server: $schema=loopkit.schema.json\nloopkit: 2\nmodel:\n  readout: \n")
    server.open(file)
    server.diagnostics(file)
    at = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 3, "character": 11}}
    offered = {item["label"] for item in server.request("textDocument/completion", at)["items"]}
    assert {"alpha", "raw", "mine"} <= offered
