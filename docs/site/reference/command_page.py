"""The pages of commands, from what the command line itself declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from loopkit.exit_codes import ExitCode
from loopkit.report.pages.markdown import code, link, prose, table

INDEX = "reference/commands/index.md"

NOTES = """## Everywhere

Output fits 80 columns. Colours appear on a terminal only, and not where `NO_COLOR` is set. `-h` or `--help` after any
command shows what is on its page here. `python -m loopkit` is the same program.

## Exit codes

An error that you can fix (code 2) is reported without a traceback; `loopkit --traceback COMMAND` shows it. Any other
error is reported with its traceback.

{exit_codes}

## Completion in the shell

```sh
eval "$(_LOOPKIT_COMPLETE=bash_source loopkit)"      # in ~/.bashrc
eval "$(_LOOPKIT_COMPLETE=zsh_source loopkit)"       # in ~/.zshrc
_LOOPKIT_COMPLETE=fish_source loopkit | source       # in ~/.config/fish/config.fish
```

Commands and options are completed after the next start of the shell.
"""


def commands_page(commands: Mapping[str, str]) -> str:
    """All commands with their one line of help.

    Args:
        commands: Help by name.
    """
    rows = [(link(f"`loopkit {name}`", page_of(name), INDEX), prose(text)) for name, text in commands.items()]
    codes = table(("code", "meaning"), [(str(code.value), prose(code.meaning)) for code in ExitCode])
    notes = NOTES.replace("{exit_codes}", codes)
    return "# Commands\n\n" + table(("command", "what it does"), rows) + f"\n\n{notes}"


def page_of(name: str) -> str:
    """A command's page, from the root of the site."""
    return f"reference/commands/{name}.md"


def command_page(name: str, command: click.Command) -> str:
    """The page of a command, and of those under it.

    Args:
        name: What it is called, behind ``loopkit``.
        command: The command.
    """
    parts = [f"# loopkit {name}", *_parts(f"loopkit {name}", command, 2)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(words: str, command: click.Command, level: int) -> Sequence[str]:
    context = click.Context(command, info_name=words)
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    parts = [code(usage), _help(command)]
    if options:
        parts += [
            f"{'#' * level} Options",
            table(("option", "meaning", "default"), [_row(o, context) for o in options]),
        ]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            below = command.get_command(context, inner)
            assert below is not None
            parts += [f"{'#' * level} {inner}", *_parts(f"{words} {inner}", below, level + 1)]
    return parts


def _help(command: click.Command) -> str:
    """Its help: paragraphs as prose, but those that click is told to leave alone as they are."""
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(
        code(text.replace("\b\n", "").replace("\b", "")) if text.startswith("\b") else prose(" ".join(text.split()))
        for text in paragraphs
    )


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else f" `{option.make_metavar(context)}`"
    meaning = " ".join(filter(None, (prose(option.help or ""), "**Required.**" if option.required else "")))
    default = option.get_default(context, call=True)
    shown = "" if default in (None, False, ()) or callable(default) or option.is_flag else f"`{default}`"
    if "Sentinel" in shown:
        shown = ""
    return names + takes, meaning, shown
