"""``provenance.json``: everything that is needed to reproduce a run."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loopkit.errors import UserError, file_errors
from loopkit.registry.spec import Spec
from loopkit.runs.atomic import write_json
from loopkit.runs.plugin_files import origin

PACKAGES = (
    "loopkit",
    "torch",
    "deepspeed",
    "numpy",
    "safetensors",
    "tokenizers",
    "datasets",
    "einops",
    "pydantic",
)


def now() -> str:
    """Return the time, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of the installed ones among some packages."""
    result = {}
    for package in packages:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            continue
    return result


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, memory and system; what needs torch to know is the trainer's to add."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def origins(specs: Iterable[Spec]) -> dict[str, str]:
    """Who brings every component in use, by ``kind name``: package and version, or a file; and the file's hash."""
    return {f"{spec.kind} {spec.name}": origin(spec.schema) for spec in specs}


def describe(
    *,
    recipe: str,
    recipe_hash: str,
    components: Mapping[str, str],
    torch: Mapping[str, Any],
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the record of a run that starts now.

    Args:
        recipe: Name of the recipe.
        recipe_hash: Hash of the resolved recipe.
        components: Result of ``origins``.
        torch: What torch knows: device, backends, numeric flags.
        command: Command line; None takes this process's.
    """
    return {
        "recipe": recipe,
        "recipe_hash": recipe_hash,
        "python": platform.python_version(),
        "packages": versions(),
        "components": dict(components),
        "machine": machine(),
        "torch": dict(torch),
        "sessions": [session(command)],
    }


def session(command: Sequence[str] | None = None, from_step: int = 0) -> dict[str, Any]:
    """Return one stretch of training, from a start or a resume to its end."""
    words = list(sys.argv if command is None else command)
    return {"command": words, "started": now(), "from_step": from_step}


def read_provenance(path: Path) -> dict[str, Any]:
    """Return the record of a run.

    Raises:
        UserError: If it cannot be read or is damaged.
    """
    with file_errors(path, "read"):
        text = path.read_bytes()
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); restore it from a copy of the run") from error
    return record


def end_session(path: Path, status: str, step: int) -> None:
    """Note how the latest stretch of training ended.

    Args:
        path: The run's provenance file.
        status: ``finished``, ``interrupted`` or ``failed``.
        step: Optimizer steps done.
    """
    record = read_provenance(path)
    record["sessions"][-1] |= {"ended": now(), "status": status, "to_step": step}
    write_json(path, record)
