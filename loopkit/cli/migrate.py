"""``loopkit migrate``: recipe files of an older format, rewritten in the present one."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loopkit.exit_codes import ExitCode
from loopkit.plural import plural


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, metavar="RECIPE...", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--check", is_flag=True, help="Print the lines that would change and write nothing.")
def command(files: tuple[Path, ...], check: bool) -> None:
    """Rewrite recipe files of format 1 in format 2.

    Renamed options and values are replaced; comments, order and layout stay. With --check, the exit code is 1 if a
    file would change.
    """
    from loopkit.errors import file_errors
    from loopkit.recipe.migration.rewrite import changed_lines, migrated_text
    from loopkit.runs import write_text

    texts = {file: migrated_text(file) for file in files}
    changed = False
    for file, text in texts.items():
        with file_errors(file, "read"):
            before = file.read_bytes().decode("utf-8-sig")
        lines = list(changed_lines(before, text))
        changed = changed or bool(lines)
        if check:
            for number, old, new in lines:
                click.echo(f"{file}:{number}\n- {old}\n+ {new}")
        elif lines:
            write_text(file, text)
            click.echo(f"{file}: {plural(len(lines), 'line')} changed")
        else:
            click.echo(f"{file}: is already in format 2")
    if check and changed:
        sys.exit(ExitCode.FAILED)
