"""A client of the YAML language server, as small as a test needs: open a document, wait for what it finds."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any


def command() -> list[str] | None:
    """How the server is started: from ``YAML_LANGUAGE_SERVER``, a file of JavaScript, or from the path."""
    node, script = shutil.which("node"), os.environ.get("YAML_LANGUAGE_SERVER")
    if node and script:
        return [node, script, "--stdio"]
    found = shutil.which("yaml-language-server")
    return [found, "--stdio"] if found and node else None


class Server:
    """One session with the server."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.number = 0
        asked = {"processId": None, "rootUri": None, "capabilities": {"workspace": {"configuration": True}}}
        self.ask("initialize", asked)
        self.tell("initialized", {})

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The result of a request."""
        self.number += 1
        number = self.number
        self._send({"id": number, "method": method, "params": params})
        return self._until(lambda message: message.get("id") == number and "method" not in message)["result"]

    def open(self, file: Path) -> None:
        text = {"uri": file.as_uri(), "languageId": "yaml", "version": 1, "text": file.read_text()}
        self.tell("textDocument/didOpen", {"textDocument": text})

    def diagnostics(self, file: Path) -> list[dict[str, Any]]:
        """What the server finds in an opened document."""
        method = "textDocument/publishDiagnostics"
        return self._until(lambda m: m.get("method") == method and m["params"]["uri"] == file.as_uri())["params"][
            "diagnostics"
        ]

    def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            message = self.heard.get(timeout=120)
            if message.get("method") == "workspace/configuration":
                settings = [{"validate": True, "hover": True, "completion": True} for _ in message["params"]["items"]]
                self._send({"id": message["id"], "result": settings})
            elif "id" in message and "method" in message:
                self._send({"id": message["id"], "result": None})
            if wanted(message):
                return message

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _listen(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            length = int(line.split(b":")[1])
            while stream.readline().strip():
                pass
            self.heard.put(json.loads(stream.read(length)))
