"""``loopkit reproduce``: run the experiments of a paper and check its claims."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loopkit.cli.completion import complete_study
from loopkit.cli.options import json_option, runs_option
from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode


@click.command("reproduce")
@click.argument("study", shell_complete=complete_study)
@click.option("--profile", "-p", metavar="NAME", help="Profile of the study, such as mini.")
@click.option("--seeds", metavar="SEEDS", help="Seeds, such as 42 or 42,101.  [default: those of the study]")
@click.option("--arm", "arms", metavar="ARM", multiple=True, help="Run only this arm; may repeat.")
@runs_option
@click.option("--results", type=click.Path(path_type=Path), help="File of the results.  [default: next to the study]")
@json_option
def command(
    study: str,
    profile: str | None,
    seeds: str | None,
    arms: tuple[str, ...],
    runs: Path,
    results: Path | None,
    as_json: bool,
) -> None:
    """Run the missing experiments of STUDY, evaluate them, and check each claim of the paper.

    STUDY is a path or the name of a shipped study. Finished runs are not repeated, and interrupted ones are resumed.
    Results, tables and plots are written next to the study.
    """
    import json

    from loopkit.report import console
    from loopkit.report.plots.study import plot_study
    from loopkit.report.tables.study import arms_markdown, claims_markdown, claims_report, radii_markdown
    from loopkit.runs import write_text
    from loopkit.studies import load_study, reproduce
    from loopkit.studies.runs import TrainingFailed

    loaded = load_study(study)
    path = results or loaded.path.with_name(f"{loaded.name}.results.json")
    try:
        result, _ = reproduce(
            loaded,
            profile=profile,
            seeds=_parse_seeds(seeds),
            arms=arms,
            root=runs,
            results=path,
            say=lambda text: click.echo(text, err=True),
        )
    except KeyboardInterrupt:
        click.echo("\ninterrupted; run the same command to resume", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except TrainingFailed as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(ExitCode.FAILED)
    if as_json:
        click.echo(json.dumps(result, indent=1))
    else:
        console().print(claims_report(result))
    plots = plot_study(
        result, loaded.title, profile or "full", path.with_name(f"{loaded.name}.plots") / (profile or "full")
    )
    table = path.with_name(f"{loaded.name}.{profile or 'full'}.md")
    parts = (f"# {loaded.title}", arms_markdown(result), radii_markdown(result), claims_markdown(result))
    write_text(table, "\n\n".join(part for part in parts if part) + "\n")
    if not as_json:
        click.echo("\nwritten: " + ", ".join(str(file) for file in (path, table, *plots)))


def _parse_seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--seeds {text}: not a list of integers; write 42 or 42,101") from None
