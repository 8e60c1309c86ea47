"""Trials or reports as a table: CSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoptree.report.study_timeline import StudyTimeline, TrialTimeline

if TYPE_CHECKING:
    import pyarrow as pa


_LAST = ("begun", "ended", "error")


def to_csv(history: StudyTimeline, path: Path, reports: bool = False) -> Path:
    """Write a row per trial, or per report."""
    import pyarrow.csv as csv

    csv.write_csv(table(history, reports), path)
    return path


def to_parquet(history: StudyTimeline, path: Path, reports: bool = False) -> Path:
    """Write a row per trial, or per report; the study's name and goal are in the schema's metadata."""
    import pyarrow.parquet as parquet

    about = {
        "study": history.name,
        "goal": f"{'maximize' if history.maximize else 'minimize'} {history.metric}",
    }
    parquet.write_table(table(history, reports).replace_schema_metadata(about), path)
    return path


def table(history: StudyTimeline, reports: bool = False) -> pa.Table:
    """Return an Arrow table. Hyper-parameters are ``config.<name>``, metrics ``metric.<name>``.

    Numbers stay numbers; a hyper-parameter with options of several types, or a schedule, is text.
    """
    import pyarrow as pa

    rows = list(_reports(history) if reports else map(_trial, history.trials))
    names = sorted(dict.fromkeys(name for row in rows for name in row), key=_place)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.table({name: _column(values) for name, values in columns.items()})


def _place(name: str) -> int:
    """Return a sort key that groups columns: configs, metrics, then the last ones."""
    return 1 if name.startswith("config.") else 2 if name.startswith("metric.") else 3 * (name in _LAST)


def _column(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {bool}:
        return pa.array(values)
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _config(trial: TrialTimeline) -> dict[str, Any]:
    return {f"config.{name}": value for name, value in trial.config.items()}


def _trial(trial: TrialTimeline) -> dict[str, Any]:
    metrics = {} if trial.last is None else trial.last.metrics
    return {
        "trial": trial.number,
        "state": trial.state,
        "epochs": trial.epochs,
        **_config(trial),
        **{f"metric.{name}": value for name, value in metrics.items()},
        "begun": trial.begun,
        "ended": trial.ended,
        "error": trial.error or None,
    }


def _reports(history: StudyTimeline) -> list[dict[str, Any]]:
    return [
        {
            "trial": trial.number,
            "epoch": report.epoch,
            "seconds": report.now,
            "epochs_trained": report.trained,
            **_config(trial),
            **{f"metric.{name}": value for name, value in report.metrics.items()},
        }
        for trial in history.trials
        for report in trial.reports
    ]
