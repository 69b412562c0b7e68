"""The pages of commands, generated from click.

mkdocs-click does not give equal pages: its tables lose metavariables, print a sentinel of click as default and do not
escape help texts, and it merges preformatted paragraphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from loopkit.exit_codes import ExitCode
from loopkit.report.pages.markdown import code, link, prose, table

INDEX = "reference/commands/index.md"

NOTES = """## All commands

Output fits 80 columns. Colours appear on a terminal only, and never if `NO_COLOR` is set. `-h` or `--help` after any
command prints its page. `python -m loopkit` runs the same program.

## Exit codes

An error that you can fix (code 2) is reported without a traceback; `loopkit --traceback COMMAND` shows it. Any other
error is reported with its traceback.

{exit_codes}

## Shell completion

```sh
eval "$(_LOOPKIT_COMPLETE=bash_source loopkit)"      # in ~/.bashrc
eval "$(_LOOPKIT_COMPLETE=zsh_source loopkit)"       # in ~/.zshrc
_LOOPKIT_COMPLETE=fish_source loopkit | source       # in ~/.config/fish/config.fish
```

Start a new shell to complete commands and options.
"""


def commands_page(commands: Mapping[str, str]) -> str:
    """Write the index of commands, with exit codes.

    Args:
        commands: Help by name.
    """
    rows = [(link(f"`loopkit {name}`", command_path(name), INDEX), prose(text)) for name, text in commands.items()]
    codes = table(("code", "meaning"), [(str(code.value), prose(code.meaning)) for code in ExitCode])
    notes = NOTES.replace("{exit_codes}", codes)
    return "# Commands\n\n" + table(("command", "purpose"), rows) + f"\n\n{notes}"


def command_path(name: str) -> str:
    """Return the path of a command's page, from the root of the site."""
    return f"reference/commands/{name}.md"


def command_page(name: str, command: click.Command) -> str:
    """Write the page of a command and its subcommands.

    Args:
        name: Its name after ``loopkit``.
        command: The command.
    """
    parts = [f"# loopkit {name}", *_parts(f"loopkit {name}", command, 2)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(path: str, command: click.Command, level: int) -> Sequence[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    parts = [code(usage), _format_help(command)]
    if options:
        parts += [
            f"{'#' * level} Options",
            table(("option", "meaning", "default"), [_row(o, context) for o in options]),
        ]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            parts += [f"{'#' * level} {name}", *_parts(f"{path} {name}", subcommand, level + 1)]
    return parts


def _format_help(command: click.Command) -> str:
    """Format the help: paragraphs as prose, preformatted ones as code."""
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(
        code(text.replace("\b\n", "").replace("\b", "")) if text.startswith("\b") else prose(" ".join(text.split()))
        for text in paragraphs
    )


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag else f" `{option.make_metavar(context)}`"
    meaning = " ".join(filter(None, (prose(option.help or ""), "**Required.**" if option.required else "")))
    default = option.get_default(context, call=True)
    text = "" if default in (None, False, ()) or callable(default) or option.is_flag else f"`{default}`"
    if "Sentinel" in text:
        text = ""
    return names + metavar, meaning, text
