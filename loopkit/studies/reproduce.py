"""``loopkit reproduce``: run what is missing, measure, judge every claim, write the results."""

from __future__ import annotations

from pathlib import Path

from loopkit.runs.atomic import check_writable
from loopkit.runs.provenance import now
from loopkit.studies.judge import ClaimVerdict, judge
from loopkit.studies.measure import load_or_measure
from loopkit.studies.results import Json, rows_by_arm, run_entry, write_results
from loopkit.studies.runs import Say, finish, numbered, planned_runs
from loopkit.studies.study import LoadedStudy


def reproduce(
    study: LoadedStudy,
    *,
    profile: str | None = None,
    seeds: tuple[int, ...] = (),
    arms: tuple[str, ...] = (),
    root: Path = Path("runs"),
    results: Path | None = None,
    say: Say = print,
) -> tuple[Json, list[ClaimVerdict]]:
    """Run and judge a study, resuming from the runs and measurements that exist.

    Args:
        study: The study.
        profile: Name of a scale; None runs the recipes unchanged.
        seeds: Instead of those of the study.
        arms: Names of the arms to run; claims about other arms are not judged.
        root: Folder of the runs.
        results: File of the results; None writes it next to the study.
        say: Called with a progress message.

    Returns:
        The written results, and the verdicts.
    """
    path = results or study.path.with_name(f"{study.name}.results.json")
    check_writable(path.parent, "name another file with --results")  # fail before training
    scale = study.scale(profile)
    sequences = scale.exit_sequences or study.exit_sequences
    runs = list(planned_runs(study, profile, seeds, arms, root))
    for run in runs:
        run.state  # noqa: B018  (raises for a folder of another recipe before training)
    entries: dict[str, Json] = {}
    for number, run in enumerate(runs, 1):
        say_numbered = numbered(say, number, len(runs))
        finish(run, say_numbered)
        measurement = load_or_measure(study, run, sequences, say_numbered)
        entries.setdefault(run.arm, {})[str(run.seed)] = run_entry(run, measurement)
    rows = rows_by_arm(entries)
    verdicts = [judge(name, claim, rows) for name, claim in study.claims.items()]
    return write_results(study, profile, now(), entries, verdicts, path), verdicts
