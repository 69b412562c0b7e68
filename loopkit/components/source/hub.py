"""The Hugging Face hub: what is cached is used, and a missing network is noticed in seconds, not minutes."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from loopkit.errors import FileError, UserError

PATIENCE = 4.0
"""Seconds that finding and reaching the hub may take before loopkit goes on without it."""


class HubUnreachable(UserError):
    """There is no way to the hub, and the cache does not have what was asked for."""


def load_dataset(name: str, config: str | None, revision: str | None, remedy: str) -> Any:
    """Load a dataset with all its splits from the hub or its cache.

    Args:
        name: ``owner/name`` on the hub.
        config: Which of its configurations.
        revision: Commit, branch or tag; ``None`` is the newest.
        remedy: What a user without a network can do, for the message.

    Raises:
        HubUnreachable: If there is no network and nothing in the cache.
        ValueError: If the hub has no such dataset.
    """
    with reach_hub(f"dataset {name}", remedy):
        import datasets

        try:
            return datasets.load_dataset(name, config, revision=revision)
        except datasets.exceptions.DatasetNotFoundError as error:
            raise UserError(
                f"dataset {name!r} cannot be opened on the hub ({error}); check its name, or {remedy}"
            ) from error


@contextmanager
def reach_hub(what: str, remedy: str) -> Iterator[None]:
    """Make hub calls inside fail fast where there is no network: they then look in the cache alone.

    Raises:
        HubUnreachable: If a call fails for want of a connection; the message names ``what`` and ``remedy``.
        FileError: If it fails for another reason of the system, such as a full disk.
    """
    reason = why_unreachable()
    try:
        with _offline() if reason else _as_it_is():
            yield
    except OSError as error:  # what the hub's clients raise for want of a network descends from it
        if reason is None and not isinstance(error, ConnectionError | TimeoutError):
            raise FileError(
                f"{what} cannot be read from the Hugging Face hub or its cache: {error}; {remedy}"
            ) from error
        raise HubUnreachable(
            f"{what} is needed from the Hugging Face hub, which cannot be reached ({reason or error}), "
            f"and it is not in the local cache; {remedy}"
        ) from error


def why_unreachable() -> str | None:
    """Why the hub cannot be reached, or ``None``; decided in at most ``PATIENCE`` seconds."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    host, port = _first_hop(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    answer: list[str | None] = [f"{host} does not answer within {PATIENCE:g} seconds"]

    def knock() -> None:
        try:
            socket.create_connection((host, port), timeout=PATIENCE).close()
            answer[0] = None
        except OSError as error:
            answer[0] = f"{host}: {error.strerror or error}"

    # looking up a name has no timeout of its own, so it happens beside us
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answer[0]


def _first_hop(endpoint: str) -> tuple[str, int]:
    """Where the first connection goes: the proxy if one is configured, else the hub."""
    url = urlsplit(endpoint)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme, proxies.get("all"))
    if proxy and not urllib.request.proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return url.hostname or "", url.port or (80 if url.scheme == "http" else 443)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the hub's clients off the network: they would retry for half a minute before they look in the cache."""
    import datasets
    import huggingface_hub

    settings = [(huggingface_hub.constants, "HF_HUB_OFFLINE"), (datasets.config, "HF_HUB_OFFLINE")]
    before = [getattr(module, name) for module, name in settings]
    try:
        for module, name in settings:
            setattr(module, name, True)
        yield
    finally:
        for (module, name), value in zip(settings, before, strict=True):
            setattr(module, name, value)
