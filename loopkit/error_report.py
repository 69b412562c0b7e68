"""Report an error: a message if the user can fix it, else a traceback and a request to report the bug."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode
from loopkit.plural import plural
from loopkit.registry.loading import IMPORTING, LOCAL
from loopkit.registry.register import registered_modules

PACKAGE = Path(__file__).resolve().parent
REPORT = "please report it with this traceback and the output of `loopkit doctor`"


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an exception: its ``exit_code``, else 2 for a user error and 1 for a bug."""
    code: Any = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    return ExitCode.USER_ERROR if isinstance(error, UserError) else ExitCode.FAILED


def format_error(error: BaseException, where: str = "") -> str:
    """Format an error, with a line that starts with ``error:``.

    Args:
        error: The exception. A ``UserError`` and an exception with an ``exit_code`` are shown without a traceback.
        where: The rank that raised it; empty for a single process.
    """
    from loopkit.recipe.node import RecipeError

    where = f"{where}: " if where else ""
    if exit_code_of(error) == ExitCode.FAILED:
        return "".join(traceback.format_exception(error)) + f"error: {where}{_describe_bug(error)}"
    if isinstance(error, RecipeError) and not where:
        return f"{error}\n\n{plural(len(error.problems), 'problem')}"
    return "\n  ".join([f"error: {where}{error}", *getattr(error, "__notes__", ())])


def _describe_bug(error: BaseException) -> str:
    summary = traceback.format_exception_only(error)[0].strip()
    plugin = plugin_at_fault(error)
    if plugin is None:
        return f"{summary}\n  this is a bug in loopkit {_version()}: {REPORT}"
    return (
        f"{summary}\n  raised in the plugin {plugin}, used by loopkit {_version()}; if the plugin is correct, {REPORT}"
    )


def plugin_at_fault(error: BaseException) -> str | None:
    """Name the plugin that raised an exception, directly or through a method of its class; None if there is none."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(IMPORTING) and str(PACKAGE) not in note:
            return str(note).removeprefix(f"{IMPORTING} ")
    plugins = {module.partition(".")[0] for module in registered_modules()} - {"loopkit"}
    culprit = None
    for modules, place in _frames(error):
        for module in modules:
            top = module.partition(".")[0]
            if top in plugins or top.startswith(LOCAL):
                name = top.removeprefix(LOCAL).rpartition("_")[0] if top.startswith(LOCAL) else top
                culprit = f"{name} ({place})"
    return culprit


def _frames(error: BaseException) -> Iterator[tuple[list[str], str]]:
    """Yield each frame, outermost first: its module and that of ``self``; its file and line."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        modules = [str(frame.f_globals.get("__name__", "")), *([] if owner is None else [type(owner).__module__])]
        yield modules, f"{frame.f_code.co_filename}:{line}"


def _version() -> str:
    try:
        return version("loopkit")
    except PackageNotFoundError:
        return "(not installed)"
