"""``hoptree trials``: the trials of a study as a table, filtered, sorted and limited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from hoptree.core.errors import WorkloadError
from hoptree.ui.common import of_a_store, print_json, study_argument

if TYPE_CHECKING:
    from hoptree.record.results import TrialResult
    from hoptree.ui.studies_view import StudyView

_STATES: Final = ("complete", "stopped", "failed", "running")
_OF_ALL: Final = ("number", "state", "epochs", "from", "error", "curve")


@click.command(name="trials")
@study_argument
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only trials in this state; may be repeated.",
)
@click.option("--sort", "key", metavar="COLUMN", help="Sort by this column; for the goal, best first.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option(
    "--columns", metavar="A,B,…", help="Show these: hyper-parameters, metrics, state, epochs, from, curve, error."
)
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many.")
@of_a_store
def trials_command(
    name: str,
    states: tuple[str, ...],
    key: str | None,
    reverse: bool,
    columns: str | None,
    limit: int | None,
    location: str,
    journal: str | None,
    as_json: bool,
) -> None:
    """List the trials of a study.

    \b
    Examples:
      hoptree trials digits --sort accuracy --limit 10
      hoptree trials digits --state failed
      hoptree trials digits --columns lr,width,accuracy,curve
    """  # noqa: D301 click needs the real character
    from hoptree.ui.studies_view import find_study, reading, trial_to_dict
    from hoptree.ui.study_tables import trials_table

    with reading(location, journal) as store:
        view = find_study(store, name)
    wanted = [column.strip() for column in columns.split(",")] if columns else []
    _check_columns(view, [*wanted, *([key] if key else [])])
    found = [trial for trial in view.trials if not states or trial.state in states]
    found = _sorted(view, found, key, reverse)[:limit]
    if as_json:
        print_json([trial_to_dict(trial) for trial in found])
    elif found:
        click.echo(trials_table(view, found, [column for column in wanted if column != "number"]))
    else:
        click.echo(f"No trial of {name} is {' or '.join(states)}." if states else f"{name} has no trials yet.")


def _check_columns(view: StudyView, names: Sequence[str]) -> None:
    configs = [name for trial in view.trials for name in trial.config]
    metrics = [view.spec.goal.metric, *(name for trial in view.trials for name in trial.metrics)]
    known = list(dict.fromkeys([*_OF_ALL, *configs, *metrics]))
    for name in names:
        if name not in known:
            raise WorkloadError(f"column: no column {name!r}; expected one of {', '.join(known)}")


def _sorted(view: StudyView, trials: list[TrialResult], key: str | None, reverse: bool) -> list[TrialResult]:
    """Return trials sorted by a column; those without a value come last in either order."""
    if key is None:
        return trials[::-1] if reverse else trials
    goal = view.spec.goal
    down = (key == goal.metric and goal.maximize) != reverse
    there: list[tuple[Any, TrialResult]] = []
    missing: list[tuple[Any, TrialResult]] = []
    for trial in trials:
        value = _value(trial, key)
        (missing if value is None else there).append((value, trial))
    there.sort(key=lambda pair: _rank(pair[0]), reverse=down)
    return [trial for _, trial in [*there, *missing]]


def _value(trial: TrialResult, key: str) -> Any:
    if key in ("number", "state", "epochs", "error"):
        return getattr(trial, key)
    value = trial.metrics[key] if key in trial.metrics else trial.config.get(key)
    return None if isinstance(value, float) and math.isnan(value) else value


def _rank(value: Any) -> tuple[bool, float, str]:
    """Return a sort key that orders numbers before texts."""
    number = isinstance(value, int | float)
    return (not number, float(value) if number else 0.0, "" if number else str(value))
