"""Check that a resumed run has the recipe and the plugin files that it was made with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from loopkit.errors import UserError
from loopkit.registry import Spec
from loopkit.runs.plugin_files import changed_components

Path = tuple[str, ...]

FREE: tuple[Path, ...] = (
    ("train", "steps"),
    ("train", "epochs"),
    ("train", "tokens"),
    ("train", "checkpoint"),
    ("train", "health"),
    ("train", "log_every"),
    ("evaluate",),
    ("trackers",),
    ("description",),
    ("paper",),
    ("extends",),
    ("profiles",),
)
"""Values that may change when a run is resumed: its length, checkpoints, evaluation, trackers, health checks."""

COMPUTED: tuple[Path, ...] = (
    ("train", "device"),
    ("train", "micro_batch"),
    ("train", "compile"),
    ("train", "checkpointing"),
    ("train", "deepspeed"),
)
"""Values that change how the same numbers are computed: allowed, but later numbers differ by rounding."""

ABSENT = object()


class OtherRecipe(UserError):
    """The recipe is not the one that the run was made with."""


def differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> dict[Path, tuple[Any, Any]]:
    """Return every leaf in which two resolved recipes differ, with both values."""
    return dict(_differences(saved, current, ()))


def _differences(saved: Any, current: Any, path: Path) -> Iterator[tuple[Path, tuple[Any, Any]]]:
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for key in dict.fromkeys([*saved, *current]):
            yield from _differences(saved.get(key, ABSENT), current.get(key, ABSENT), (*path, key))
    elif saved != current:
        yield path, (saved, current)


def check_same(saved: Mapping[str, Any], current: Mapping[str, Any], *, by_content: Collection[Path] = ()) -> list[str]:
    """Check that a recipe is still the same experiment.

    Args:
        saved: Values of the run's recipe, completed with the options that were added since (``Identity.completed``).
        current: Values of the recipe now.
        by_content: Keys to ignore, each with everything below it: the content that they name is compared elsewhere.

    Returns:
        Descriptions of the allowed changes that alter how numbers are computed.

    Raises:
        OtherRecipe: If anything else changed; the message lists the differences.
    """
    changes = {path: pair for path, pair in differences(saved, current).items() if not _under(path, by_content)}
    refused = {path: pair for path, pair in changes.items() if not _under(path, FREE + COMPUTED)}
    # one draw for each micro-step: another micro-batch is another experiment
    if ("train", "micro_batch") in changes and current["train"]["loops_per"] == "micro_step":
        refused[("train", "micro_batch")] = changes["train", "micro_batch"]
    if refused:
        lines = "\n".join(_format_change(path, *pair) for path, pair in refused.items())
        raise OtherRecipe(
            "this is not the recipe that the run was made with:\n"
            f"{lines}\n"
            "--resume accepts changes to steps, evaluation and trackers; "
            "give another experiment another name with --name"
        )
    return [_format_change(path, *pair) for path, pair in changes.items() if _under(path, COMPUTED)]


def check_plugins(recorded: Mapping[str, str], specs: Iterable[Spec], *, accept: bool) -> list[str]:
    """Check that the plugin files of a run are unchanged, or that the user accepts the changes.

    Args:
        recorded: Origin of each component by ``kind name``, from the checkpoint.
        specs: The components of the recipe.
        accept: Whether ``--accept-changed-plugins`` was given.

    Returns:
        Descriptions of the accepted changes.

    Raises:
        OtherRecipe: If a file has changed and ``accept`` is false.
    """
    changes = changed_components(recorded, specs)
    if changes and not accept:
        lines = "\n".join(f"  {change}" for change in changes)
        raise OtherRecipe(
            f"plugin files have changed since the run was made:\n{lines}\n"
            "put them back (the run keeps copies in its folder plugins/), or resume with --accept-changed-plugins"
        )
    return changes


def _under(path: Path, roots: Collection[Path]) -> bool:
    return any(path[: len(root)] == root for root in roots)


def _format_change(path: Path, saved: Any, current: Any) -> str:
    def text(value: Any) -> str:
        return "(absent)" if value is ABSENT else repr(value)

    return f"  {'.'.join(map(str, path))}: {text(saved)} in the run, {text(current)} now"
