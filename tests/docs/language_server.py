"""A minimal client of the YAML language server."""

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
    """Return the command of the server: the script in ``YAML_LANGUAGE_SERVER``, or the program on the path."""
    node, script = shutil.which("node"), os.environ.get("YAML_LANGUAGE_SERVER")
    if node and script:
        return [node, script, "--stdio"]
    program = shutil.which("yaml-language-server")
    return [program, "--stdio"] if program and node else None


class Server:
    """One session with the server."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.number = 0
        params = {"processId": None, "rootUri": None, "capabilities": {"workspace": {"configuration": True}}}
        self.request("initialize", params)
        self.notify("initialized", {})

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        self.number += 1
        number = self.number
        self._send({"id": number, "method": method, "params": params})
        return self._until(lambda message: message.get("id") == number and "method" not in message)["result"]

    def open(self, file: Path) -> None:
        text = {"uri": file.as_uri(), "languageId": "yaml", "version": 1, "text": file.read_text()}
        self.notify("textDocument/didOpen", {"textDocument": text})

    def diagnostics(self, file: Path) -> list[dict[str, Any]]:
        """Return the diagnostics of an opened document."""
        method = "textDocument/publishDiagnostics"
        return self._until(lambda m: m.get("method") == method and m["params"]["uri"] == file.as_uri())["params"][
            "diagnostics"
        ]

    def _until(self, matches: Any) -> dict[str, Any]:
        while True:
            message = self.messages.get(timeout=120)
            if message.get("method") == "workspace/configuration":
                settings = [{"validate": True, "hover": True, "completion": True} for _ in message["params"]["items"]]
                self._send({"id": message["id"], "result": settings})
            elif "id" in message and "method" in message:
                self._send({"id": message["id"], "result": None})
            if matches(message):
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
            self.messages.put(json.loads(stream.read(length)))
