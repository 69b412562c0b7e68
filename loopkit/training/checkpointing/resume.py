"""Check that a resumed run has the recipe and the plugin files that it was made with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from loopkit.errors import UserError
from loopkit.recipe.difference import Difference, differences
from loopkit.recipe.node import Path
from loopkit.registry import Spec
from loopkit.runs.plugin_files import changed_components

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


class OtherRecipe(UserError):
    """The recipe is not the one that the run was made with."""


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
    changes = [change for change in differences(saved, current) if not _under(change.path, by_content)]
    computed = COMPUTED
    if current["train"]["loops_per"] == "micro_step":
        # one draw for each micro-step: another micro-batch is another experiment
        computed = tuple(path for path in COMPUTED if path != ("train", "micro_batch"))
    if refused := [change for change in changes if not _under(change.path, FREE + computed)]:
        lines = "\n".join(map(_format_change, refused))
        raise OtherRecipe(
            "the recipe differs from that of the run:\n"
            f"{lines}\n"
            "--resume accepts changes to steps, evaluation and trackers; "
            "give another experiment another name with --name"
        )
    return [_format_change(change) for change in changes if _under(change.path, computed)]


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


def _format_change(change: Difference) -> str:
    saved, current = change.format_values()
    return f"  {change.key}: {saved} in the run, {current} now"
