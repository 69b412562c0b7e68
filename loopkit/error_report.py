"""How an error is reported: a message for what a user can fix, a traceback and a request to report it for the rest."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode
from loopkit.registry.loading import IMPORTING, LOCAL
from loopkit.registry.register import registered_modules

PACKAGE = Path(__file__).resolve().parent
REPORT = "please report it with this traceback and the output of `loopkit doctor`"


def exit_code_of(error: BaseException) -> int:
    """The exit code of a command that an exception ended: ``exit_code`` of the exception, else 2 or 1."""
    code: Any = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    return ExitCode.USER_ERROR if isinstance(error, UserError) else ExitCode.FAILED


def format_error(error: BaseException, where: str = "") -> str:
    """The text of an error, with a line that starts with ``error:``.

    Args:
        error: The exception. A ``UserError`` and an exception with an ``exit_code`` are shown without a traceback.
        where: Which rank it happened on; empty for a single process.
    """
    from loopkit.recipe.node import RecipeError

    where = f"{where}: " if where else ""
    if exit_code_of(error) == ExitCode.FAILED:
        return "".join(traceback.format_exception(error)) + f"error: {where}{_bug(error)}"
    if isinstance(error, RecipeError) and not where:
        count = len(error.problems)
        return f"{error}\n\n{count} problem{'' if count == 1 else 's'}"
    return "\n  ".join([f"error: {where}{error}", *getattr(error, "__notes__", ())])


def _bug(error: BaseException) -> str:
    what = traceback.format_exception_only(error)[0].strip()
    plugin = plugin_at_fault(error)
    if plugin is None:
        return f"{what}\n  this is a bug in loopkit {_version()}: {REPORT}"
    return f"{what}\n  raised in the plugin {plugin}, used by loopkit {_version()}; if it is not at fault, {REPORT}"


def plugin_at_fault(error: BaseException) -> str | None:
    """The plugin whose code raised an exception, or whose object's contract did, with file and line; else None."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(IMPORTING) and str(PACKAGE) not in note:
            return str(note).removeprefix(f"{IMPORTING} ")
    plugins = {module.partition(".")[0] for module in registered_modules()} - {"loopkit"}
    found = None
    for modules, place in _frames(error):
        for module in modules:
            top = module.partition(".")[0]
            if top in plugins or top.startswith(LOCAL):
                name = top.removeprefix(LOCAL).rpartition("_")[0] if top.startswith(LOCAL) else top
                found = f"{name} ({place})"
    return found


def _frames(error: BaseException) -> Iterator[tuple[list[str], str]]:
    """Of each frame, outermost first: its module and that of the object whose method it is; its file and line."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        owner = frame.f_locals.get("self")
        modules = [str(frame.f_globals.get("__name__", "")), *([] if owner is None else [type(owner).__module__])]
        yield modules, f"{frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next


def _version() -> str:
    try:
        return version("loopkit")
    except PackageNotFoundError:
        return "(not installed)"
