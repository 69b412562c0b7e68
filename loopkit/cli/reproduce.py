"""``loopkit reproduce``: a paper's experiments run, measured and judged."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loopkit.cli.completion import study_words
from loopkit.cli.options import json_option
from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode


@click.command("reproduce")
@click.argument("study", shell_complete=study_words)
@click.option("--profile", "-p", help="The study at another scale, such as mini.")
@click.option("--seeds", help="Seeds, such as 42 or 42,101; as the study says if not given.")
@click.option("--arm", "arms", multiple=True, help="Only this arm; may repeat.")
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@click.option("--results", type=click.Path(path_type=Path), help="Where results go; beside the study if not given.")
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
    """Run every experiment of STUDY that is missing, measure, and judge each claim of the paper.

    STUDY is a path or the name of a shipped study. What is done is not done again, and what was interrupted goes on
    where it stopped. Results, tables and plots are written beside the study.
    """
    import json

    from loopkit.report import console
    from loopkit.report.plots.study import plot_study
    from loopkit.report.tables.study import arms_markdown, claims_markdown, claims_report, radii_markdown
    from loopkit.runs import write_text
    from loopkit.studies import load_study, reproduce
    from loopkit.studies.runs import TrainingFailed

    loaded = load_study(study)
    chosen = _seeds(seeds)
    path = results or loaded.path.with_name(f"{loaded.name}.results.json")
    try:
        found, _ = reproduce(
            loaded,
            profile=profile,
            seeds=chosen,
            arms=arms,
            root=runs,
            results=path,
            say=lambda text: click.echo(text, err=True),
        )
    except KeyboardInterrupt:
        click.echo("\ninterrupted; the same command goes on where it stopped", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except TrainingFailed as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(ExitCode.FAILED)
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        console().print(claims_report(found))
    plots = plot_study(
        found, loaded.title, profile or "full", path.with_name(f"{loaded.name}.plots") / (profile or "full")
    )
    table = path.with_name(f"{loaded.name}.{profile or 'full'}.md")
    parts = (f"# {loaded.title}", arms_markdown(found), radii_markdown(found), claims_markdown(found))
    write_text(table, "\n\n".join(part for part in parts if part) + "\n")
    if not as_json:
        click.echo("\nwritten: " + ", ".join(str(file) for file in (path, table, *plots)))


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--seeds {text}: write integers, such as 42 or 42,101") from None
