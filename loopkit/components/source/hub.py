"""The Hugging Face hub: fall back to the cache within seconds if there is no network."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from loopkit.components.source import canonical_split
from loopkit.errors import FileError, UserError

TIMEOUT = 4.0
"""Seconds to resolve and reach the hub."""


class HubUnreachable(UserError):
    """The hub cannot be reached, and the cache does not have the data."""


def load_dataset(name: str, config: str | None, revision: str | None, remedy: str) -> Any:
    """Load a dataset with all its splits from the hub or its cache.

    Args:
        name: ``owner/name`` on the hub.
        config: Configuration of the dataset.
        revision: Commit, branch or tag; ``None`` is the newest.
        remedy: What to do without a network, for the message.

    Raises:
        HubUnreachable: If the hub cannot be reached and the cache does not have the dataset.
        UserError: If the hub does not have the dataset.
    """
    with reach_hub(f"dataset {name}", remedy):
        import datasets

        try:
            return datasets.load_dataset(name, config, revision=revision)
        except datasets.exceptions.DatasetNotFoundError as error:
            raise UserError(
                f"dataset {name!r} cannot be opened on the hub ({error}); correct its name, or {remedy}"
            ) from error


def load_splits(name: str, config: str | None, revision: str | None) -> dict[str, Any]:
    """Load the dataset of ``data.source.dataset``, with canonical names of its splits."""
    remedy = "set data.source.path to a local file or folder instead of data.source.dataset"
    return {canonical_split(split): rows for split, rows in load_dataset(name, config, revision, remedy).items()}


@contextmanager
def reach_hub(what: str, remedy: str) -> Iterator[None]:
    """Make hub calls read only the cache if the hub cannot be reached.

    Raises:
        HubUnreachable: If a call fails without a connection; the message names ``what`` and ``remedy``.
        FileError: If it fails for another system error, such as a full disk.
    """
    reason = why_unreachable()
    try:
        with _offline() if reason else nullcontext():
            yield
    except OSError as error:  # base class of the connection errors of the hub's clients
        if reason is None and not isinstance(error, ConnectionError | TimeoutError):
            raise FileError(
                f"{what} cannot be read from the Hugging Face hub or its cache: {error}; {remedy}"
            ) from error
        raise HubUnreachable(
            f"{what} is not in the local cache, and the Hugging Face hub cannot be reached ({reason or error}); "
            f"{remedy}"
        ) from error


def why_unreachable() -> str | None:
    """Return why the hub cannot be reached, or ``None``, within ``TIMEOUT`` seconds."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    host, port = _first_hop(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    reason: list[str | None] = [f"{host} does not answer within {TIMEOUT:g} seconds"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=TIMEOUT).close()
            reason[0] = None
        except OSError as error:
            reason[0] = f"{host}: {error.strerror or error}"

    # name resolution has no timeout, so it runs in a thread
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return reason[0]


def _first_hop(endpoint: str) -> tuple[str, int]:
    """Return host and port of the first connection: the proxy if one is configured, else the hub."""
    url = urlsplit(endpoint)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme, proxies.get("all"))
    if proxy and not urllib.request.proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return url.hostname or "", url.port or (80 if url.scheme == "http" else 443)


@contextmanager
def _offline() -> Iterator[None]:
    """Put the hub's clients offline; they otherwise retry for half a minute before they read the cache."""
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
