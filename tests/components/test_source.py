"""The contract of sources, and access to the hub."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest

from loopkit.components.source import Document, Span, canonical_split, count_lines, hub
from loopkit.errors import UserError


def test_document_joins_its_parts() -> None:
    document = Document((Span("1+1=", learn=False), Span("2")), "train:1")
    assert document.text == "1+1=2"


@pytest.mark.parametrize(
    ("name", "expected"), [("valid", "validation"), ("dev", "validation"), ("train", "train"), ("hard", "hard")]
)
def test_split_names(name: str, expected: str) -> None:
    assert canonical_split(name) == expected


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_unfinished_line_counts(text: str, lines: int) -> None:
    assert count_lines(text) == lines


def test_imports_need_no_torch_or_datasets() -> None:
    modules = [f"loopkit.components.source.{name}" for name in ("wikitext", "text", "python_docs", "hub")]
    tokenizers = ("regex", "bytes", "characters", "huggingface", "numbers")
    modules += [f"loopkit.components.tokenizer.{name}" for name in tokenizers]
    heavy = "{'torch', 'datasets', 'tokenizers'}"
    code = f"import sys, {', '.join(modules)}, loopkit.data\nassert not {heavy} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, and HF_HUB_OFFLINE is not set."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture
def refused_port(direct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub on a local port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")


def test_missing_network_fails_without_retries(refused_port: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The retries of the hub's library sleep for 23 s."""
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    with pytest.raises(hub.HubUnreachable, match=r"127.0.0.1: Connection refused.*set the_path") as caught:
        hub.load_dataset("loopkit-tests/absent", None, None, "set the_path")
    assert sleeps == []
    assert isinstance(caught.value, UserError)


def test_hanging_name_server_times_out(direct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TIMEOUT", 0.1)

    answered = threading.Event()

    def hang(*args: object, **kwargs: object) -> None:
        answered.wait(60)
        raise OSError("the name server has answered")

    monkeypatch.setattr(hub.socket, "create_connection", hang)
    assert "does not answer" in (hub.why_unreachable() or "")
    answered.set()


def test_answering_hub_is_reachable(direct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub.why_unreachable() is None


def test_first_hop_is_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert hub._first_hop("https://huggingface.co") == ("proxy.example", 3128)


def test_other_system_errors_are_not_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "why_unreachable", lambda: None)
    with pytest.raises(OSError, match="disk full") as caught, hub.reach_hub("x", "y"):
        raise OSError("disk full")
    assert not isinstance(caught.value, hub.HubUnreachable)


def test_offline_mode_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    before = huggingface_hub.constants.HF_HUB_OFFLINE
    monkeypatch.setattr(hub, "why_unreachable", lambda: "no cable")

    def ask() -> None:
        assert huggingface_hub.constants.HF_HUB_OFFLINE is True
        raise ConnectionError("as the client does")

    with pytest.raises(hub.HubUnreachable, match="no cable"), hub.reach_hub("x", "y"):
        ask()
    assert huggingface_hub.constants.HF_HUB_OFFLINE is before
