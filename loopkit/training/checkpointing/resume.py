"""What may change between the two halves of a run, and the difference in words where too much did."""

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
"""Values that a resumed run may have anew: how long, what is kept and measured, what is done about trouble."""

COMPUTED: tuple[Path, ...] = (
    ("train", "device"),
    ("train", "micro_batch"),
    ("train", "compile"),
    ("train", "checkpointing"),
    ("train", "deepspeed"),
)
"""Values that change how the same numbers are computed: allowed, but the rest of the run differs by rounding."""

ABSENT = object()


class OtherRecipe(UserError):
    """The recipe is not the one the run was made with."""


def differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[Path, tuple[Any, Any]]:
    """Every leaf in which two resolved recipes differ, with both values."""
    return dict(_differences(saved, wanted, ()))


def _differences(saved: Any, wanted: Any, path: Path) -> Iterator[tuple[Path, tuple[Any, Any]]]:
    if isinstance(saved, Mapping) and isinstance(wanted, Mapping):
        for key in dict.fromkeys([*saved, *wanted]):
            yield from _differences(saved.get(key, ABSENT), wanted.get(key, ABSENT), (*path, key))
    elif saved != wanted:
        yield path, (saved, wanted)


def check_same(saved: Mapping[str, Any], wanted: Mapping[str, Any], *, by_content: Collection[Path] = ()) -> list[str]:
    """Let a run go on if its recipe is still the same experiment.

    Args:
        saved: Values of the run's recipe, completed with the options that were added since (``Identity.completed``).
        wanted: Values of the recipe now.
        by_content: Keys, each with everything below it, that somebody else compares: what they name counts, and not
            where it lies.

    Returns:
        The changes that are allowed but alter how numbers are computed, in words.

    Raises:
        OtherRecipe: If anything else changed, with the difference.
    """
    found = {path: pair for path, pair in differences(saved, wanted).items() if not _under(path, by_content)}
    refused = {path: pair for path, pair in found.items() if not _under(path, FREE + COMPUTED)}
    # one draw for each micro-step: another micro-batch is another experiment
    if ("train", "micro_batch") in found and wanted["train"]["loops_per"] == "micro_step":
        refused[("train", "micro_batch")] = found["train", "micro_batch"]
    if refused:
        lines = "\n".join(_line(path, *pair) for path, pair in refused.items())
        raise OtherRecipe(
            "this is not the recipe that the run was made with:\n"
            f"{lines}\n"
            "--resume accepts changes to steps, evaluation and trackers; "
            "give another experiment another name with --name"
        )
    return [_line(path, *pair) for path, pair in found.items() if _under(path, COMPUTED)]


def check_plugins(recorded: Mapping[str, str], specs: Iterable[Spec], *, accept: bool) -> list[str]:
    """Let a run go on if its plugin files are those that it was made with, or if the user accepts that they are not.

    Args:
        recorded: Who brought each component by ``kind name``, as the checkpoint has it.
        specs: The components of the recipe.
        accept: Whether ``--accept-changed-plugins`` was given.

    Returns:
        The changes that were accepted, in words.

    Raises:
        OtherRecipe: If a file has changed and that was not accepted.
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


def _line(path: Path, saved: Any, wanted: Any) -> str:
    def text(value: Any) -> str:
        return "(absent)" if value is ABSENT else repr(value)

    return f"  {'.'.join(map(str, path))}: {text(saved)} in the run, {text(wanted)} now"
