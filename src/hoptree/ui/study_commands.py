"""``hoptree run``, ``explain``, ``studies``, ``show``, ``best`` and ``verify``: run studies and show their results.

Commands that show something never write, take no lease, and work while another process drives the study. They
import what they need when they run, so that ``hoptree --help`` stays fast.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.ui.common import interruptible, of_a_store, print_json, stdout_kept_for_json, study_argument
from hoptree.ui.exit_codes import FAILED
from hoptree.ui.instance_options import for_money, of_instance, take_instance

if TYPE_CHECKING:
    from hoptree.record.results import Results, TrialResult
    from hoptree.study.study import Study, Verification
    from hoptree.ui.studies_view import StudyView

# --- running ----------------------------------------------------------------------------------------------


@click.command(name="run", short_help="Run or resume the study of a Python file.")
@click.argument("target", metavar="FILE[:NAME]", type=click.Path())
@click.option("--workers", type=int, help="Worker processes.  [default: one per GPU or core]")
@click.option("--memory-per-worker", metavar="SIZE", help="Limit the memory of a worker, for example '2 GB'.")
@click.option("--replicate-idle", metavar="SIZE", help="Let an idle Ray node take copies of this size.")
@click.option(
    "--backend",
    metavar="NAME",
    default="local",
    help="local, ray, or one that a package registers.  [default: local]",
)
@click.option("--mirror", metavar="URL", help="An Optuna storage that follows the study, for optuna-dashboard.")
@click.option("--accept-changes", is_flag=True, help="Resume although code, data or platform have changed.")
@click.option("--same-platform", is_flag=True, help="Train only on workers of the most common platform.")
@click.option("--unit-limit", type=float, metavar="SECONDS", help="Treat a unit that takes longer as hung.")
@for_money
@click.option("--time-limit", metavar="TIME", help="End with the best so far after this time, such as '30 min'.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def run_command(
    target: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Run or resume the study that a Python file defines; a finished study trains nothing.

    NAME is the variable or the name of the study; it can be left out if there is only one. Code below
    if __name__ == "__main__": is not run. Ctrl-C lets units that are training finish, a second one stops at once.

    A terminal shows live progress, a log file gets a few lines. The exit code is 1 if no trial is complete.
    With --deadline or --budget and the terms of an instance, nodes come and go as hoptree plan shows.

    \b
    Examples:
      hoptree run digits.py
      hoptree run studies.py:digits --workers 4 --time-limit 30min
    """  # noqa: D301 click needs the real character
    from hoptree.ui.programs import program

    instance = take_instance(options)
    with interruptible(f"Interrupted. Progress is saved; resume with: hoptree run {shlex.quote(target)}"):
        with stdout_kept_for_json(as_json), program(target) as study:
            results = study.run(instance=instance, **options)
            outcome = _outcome(study, results)
        if as_json:
            print_json(outcome)
        else:
            click.echo(_outcome_text(outcome, results))
        if not results.limit_reached and (not results.trials or outcome["trials"]["running"]):
            raise KeyboardInterrupt  # the study handled the first Ctrl-C by finishing its units
    if outcome["best"] is None:
        sys.exit(FAILED)


def _outcome(study: Study, results: Results) -> dict[str, Any]:
    from hoptree.ui.studies_view import count_states, trial_to_dict

    counts = count_states(results.trials)
    best = results.find_best() if counts["complete"] or results.limit_reached else None
    return {
        "study": study.name,
        "trials": counts,
        "best": None if best is None else {**trial_to_dict(best), "fingerprint": best.fingerprint},
        "savings": msgspec.to_builtins(results.savings),
        "limit_reached": results.limit_reached,
        "cost": None if results.cost is None else results.cost.to_dict(),
        "store": str(study.store),
    }


def _outcome_text(outcome: dict[str, Any], results: Results) -> str:
    from hoptree.ui.study_tables import counted

    name, store = outcome["study"], outcome["store"]
    lines = [f"{name}: {counted(outcome['trials'])}"]
    if outcome["best"] is not None:
        lines += [f"Best: {results.best}", f"Its fingerprint: {outcome['best']['fingerprint']}"]
    if results.limit_reached:
        lines.append("The time limit is over; the next run goes on from here")
    lines += [f"Work: {results.savings}"]
    if results.traffic is not None:
        lines += [f"Traffic: {results.traffic}"]
    if results.cost is not None:
        lines += [f"Cost: {results.cost.summary()}"]
    lines += [f"States and journal: {store}"]
    if outcome["trials"]["failed"]:
        where = "" if Path(store) == Path(".hoptree").absolute() else f" --store {shlex.quote(store)}"
        lines.append(f"Show the errors: hoptree show {shlex.quote(name)}{where}")
    return "\n".join(lines)


# --- showing ----------------------------------------------------------------------------------------------


@click.command(name="explain", short_help="Estimate what a study would train, and how long.")
@click.argument("target", metavar="FILE[:NAME]", type=click.Path())
@click.option("--workers", type=int, help="Worker processes.  [default: one per core]")
@click.option("--accept-changes", is_flag=True, help="Assume that run gets --accept-changes too.")
@of_instance
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain_command(target: str, workers: int | None, accept_changes: bool, as_json: bool, **terms: Any) -> None:
    """Estimate what a study would train and how long it would take, before you run it.

    Shows trials, requested and shared epochs, what the store holds already, time with a range on 1, 2, 4 … workers,
    memory, disk, the stage tree and a chart. Times come from earlier runs, or from a few batches of some configs;
    the rest is a simulation with the same search and the same engine. After a run it compares estimate and result.
    Invalid studies raise the same errors as in run. With the terms of an instance it shows what the rest costs.

    \b
    Examples:
      hoptree explain digits.py
      hoptree explain digits.py --workers 4 --json
    """  # noqa: D301 click needs the real character
    from hoptree.ui.programs import program

    instance = take_instance(terms)
    with stdout_kept_for_json(as_json), program(target) as study:
        forecast = study.explain(workers, accept_changes=accept_changes, instance=instance)
    if as_json:
        print_json(forecast.to_dict())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
        click.echo(forecast.text(max(40, width), colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))


@click.command(name="studies", short_help="List the studies of a store.")
@of_a_store
def studies_command(location: str, journal: str | None, as_json: bool) -> None:
    """List the studies of a store with their progress, best trial and driver.

    Example: hoptree studies
    """
    from hoptree.ui.studies_view import all_studies, reading
    from hoptree.ui.study_tables import studies_table, study_line

    lines: list[Any] = []
    with reading(location, journal) as store:
        for head, view in all_studies(store):
            if isinstance(view, HoptreeError):
                click.echo(f"{type(view).__name__}: {view}", err=True)
            if not as_json:
                lines.append(study_line(head, view))
            elif isinstance(view, HoptreeError):
                lines.append({**head.to_dict(), "error": str(view)})
            else:
                lines.append(view.summary())
    if as_json:
        print_json(lines)
    else:
        click.echo(studies_table(lines) if lines else f"No studies in {Path(location).absolute()} yet.")


@click.command(name="show", short_help="Show a study's definition and trials.")
@study_argument
@click.option("--trial", "number", type=int, help="Only this trial, with its full curve and error.")
@of_a_store
def show_command(name: str, number: int | None, location: str, journal: str | None, as_json: bool) -> None:
    """Show a study's definition, its trials, and how many epochs were shared.

    \b
    Examples:
      hoptree show digits
      hoptree show digits --trial 3
    """  # noqa: D301 click needs the real character
    from hoptree.ui.studies_view import find_study, reading, trial_to_dict
    from hoptree.ui.study_tables import study_tables, trial_tables

    with reading(location, journal) as store:
        view = find_study(store, name)
    if number is None:
        print_json(view.details()) if as_json else click.echo(study_tables(view))
        return
    trial = view.trial(number)
    if as_json:
        print_json({**trial_to_dict(trial), "curve": trial.curve, **_stored(view, trial)})
    else:
        click.echo(trial_tables(view, trial))


@click.command(name="best", short_help="Show the best trial, and how to load its model.")
@study_argument
@of_a_store
def best_command(name: str, location: str, journal: str | None, as_json: bool) -> None:
    """Show the best trial, where its state is stored, and how to load its model.

    Example: hoptree best digits
    """
    from hoptree.ui.programs import lines_to_load
    from hoptree.ui.studies_view import find_study, reading, trial_to_dict
    from hoptree.ui.study_tables import best_table, counted

    with reading(location, journal) as store:
        view = find_study(store, name)
    best = view.best
    if best is None:
        raise WorkloadError(
            f"{name}: no trial is complete ({counted(view.counts, view.head)}), so there is no best trial yet; "
            f"hoptree show {shlex.quote(name)} shows the progress"
        )
    lines = lines_to_load(view.spec.program, name)
    if as_json:
        print_json({"study": name, **trial_to_dict(best), **_stored(view, best), "python": lines})
        return
    click.echo(best_table(view, best))
    click.echo("\n".join(["", "Load its model in Python:", *(f"    {line}" for line in lines)]))


def _stored(view: StudyView, trial: TrialResult) -> dict[str, Any]:
    return {"fingerprint": view.fingerprint(trial), "state_file": view.state_file(trial)}


# --- verifying --------------------------------------------------------------------------------------------


@click.command(name="verify", short_help="Train trials again, and compare the bits.")
@study_argument
@click.argument("trial", required=False, type=int)
@click.option("--program", "target", metavar="FILE[:NAME]", help="The code.  [default: what it was run with]")
@of_a_store
def verify_command(
    name: str, trial: int | None, target: str | None, location: str, journal: str | None, as_json: bool
) -> None:
    """Train complete trials (or one) again, each in a fresh process, and compare the bits with the stored state.

    The exit code is 1 if a trial differs or has no stored state. Give a bundle, FILE.zip, in place of the name to
    compare it with what the program trains here, and to see the likely reason of differences.

    \b
    Examples:
      hoptree verify digits
      hoptree verify digits 3 --program digits.py
      hoptree verify digits.zip --program digits.py
    """  # noqa: D301 click needs the real character
    from hoptree.ui.export_commands import is_bundle, verify_bundle
    from hoptree.ui.programs import check_same_study, program, recorded_program
    from hoptree.ui.studies_view import find_study, reading
    from hoptree.ui.study_tables import counted

    if is_bundle(name):
        verify_bundle(name, trial, target, as_json)
        return
    with reading(location, journal) as store:
        view = find_study(store, name)
    numbers = [each.number for each in view.trials if each.state == "complete"] if trial is None else [trial]
    if not numbers:
        raise WorkloadError(
            f"{name}: no trial is complete ({counted(view.counts, view.head)}), so there is nothing to verify"
        )
    found: list[dict[str, Any]] = []
    with (
        interruptible("Interrupted."),
        stdout_kept_for_json(as_json),
        program(target or recorded_program(view.spec, name), name) as study,
    ):
        check_same_study(study, name, view.spec)
        study.keep_in(location, journal)
        for result in study.verifications(trial):
            found.append(_verification(result))
            if not as_json:
                click.echo(_verification_line(found[-1]))
    if as_json:
        print_json(found)
    if not all(each["same"] for each in found):
        sys.exit(FAILED)


def _verification(result: Verification) -> dict[str, Any]:
    return {"trial": result.trial, "stored": result.stored, "trained": result.trained, "same": result.holds}


def _verification_line(found: dict[str, Any]) -> str:
    from hoptree.ui.study_tables import short

    if not found["stored"]:
        return f"trial {found['trial']}: cannot be compared: its stored state is missing or damaged"
    prints = f"stored {short(found['stored'])}, trained again {short(found['trained'])}"
    return f"trial {found['trial']}: {prints}: {'same bits' if found['same'] else 'differs'}"
