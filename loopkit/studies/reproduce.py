"""``loopkit reproduce``: run what is missing, measure, judge every claim, write the results."""

from __future__ import annotations

from pathlib import Path

from loopkit.runs.atomic import check_writable
from loopkit.runs.provenance import now
from loopkit.studies.judge import ClaimVerdict, judge
from loopkit.studies.measure import measured
from loopkit.studies.results import Json, rows_by_arm, run_entry, write_results
from loopkit.studies.runs import Say, finish, planned_runs
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
    """Bring a study to its end, going on from whatever is there.

    Args:
        study: The study.
        profile: Its scale; None runs the recipes as they are.
        seeds: Instead of those of the study.
        arms: Only these; a claim about another one is not judged.
        root: Folder of the runs.
        results: Where results go; None writes them beside the study.
        say: Told what is being done.

    Returns:
        What was written, and the verdicts.
    """
    path = results or study.path.with_name(f"{study.name}.results.json")
    check_writable(path.parent, "name another file with --results")  # before hours are spent
    scale = study.scale(profile)
    sequences = scale.exit_sequences or study.exit_sequences
    runs = list(planned_runs(study, profile, seeds, arms, root))
    for run in runs:
        run.state  # noqa: B018  (a folder of another recipe is said before hours are spent)
    entries: dict[str, Json] = {}
    for number, run in enumerate(runs, 1):
        finish(run, lambda text, number=number: say(f"[{number}/{len(runs)}] {text}"))  # type: ignore[misc]
        found = measured(study, run, sequences, lambda text, number=number: say(f"[{number}/{len(runs)}] {text}"))  # type: ignore[misc]
        entries.setdefault(run.arm, {})[str(run.seed)] = run_entry(run, found)
    rows = rows_by_arm(entries)
    verdicts = [judge(name, claim, rows) for name, claim in study.claims.items()]
    return write_results(study, profile, now(), entries, verdicts, path), verdicts
