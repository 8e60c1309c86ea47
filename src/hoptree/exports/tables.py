"""Trials or reports as a table: CSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoptree.report.study_timeline import StudyTimeline, TrialTimeline

if TYPE_CHECKING:
    import pyarrow as pa


_LAST = ("begun", "ended", "error")


def to_csv(chronicle: StudyTimeline, path: Path, reports: bool = False) -> Path:
    """Write a row per trial, or per report."""
    import pyarrow.csv as csv

    csv.write_csv(table(chronicle, reports), path)
    return path


def to_parquet(chronicle: StudyTimeline, path: Path, reports: bool = False) -> Path:
    """Write a row per trial, or per report; the study's name and goal are in the schema's metadata."""
    import pyarrow.parquet as parquet

    about = {
        "study": chronicle.name,
        "goal": f"{'maximize' if chronicle.maximize else 'minimize'} {chronicle.metric}",
    }
    parquet.write_table(table(chronicle, reports).replace_schema_metadata(about), path)
    return path


def table(chronicle: StudyTimeline, reports: bool = False) -> pa.Table:
    """Return an Arrow table. Hyper-parameters are ``config.<name>``, metrics ``metric.<name>``.

    Numbers stay numbers; a hyper-parameter with options of several types, or a schedule, is text.
    """
    import pyarrow as pa

    rows = list(_reports(chronicle) if reports else map(_trial, chronicle.courses))
    names = sorted(dict.fromkeys(name for row in rows for name in row), key=_place)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.table({name: _column(values) for name, values in columns.items()})


def _place(name: str) -> int:
    """Return where a column stands: what a trial has may come late, but stands beside its like."""
    return 1 if name.startswith("config.") else 2 if name.startswith("metric.") else 3 * (name in _LAST)


def _column(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {bool}:
        return pa.array(values)
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _config(course: TrialTimeline) -> dict[str, Any]:
    return {f"config.{name}": value for name, value in course.config.items()}


def _trial(course: TrialTimeline) -> dict[str, Any]:
    metrics = {} if course.last is None else course.last.metrics
    return {
        "trial": course.number,
        "state": course.state,
        "epochs": course.epochs,
        **_config(course),
        **{f"metric.{name}": value for name, value in metrics.items()},
        "begun": course.begun,
        "ended": course.ended,
        "error": course.error or None,
    }


def _reports(chronicle: StudyTimeline) -> list[dict[str, Any]]:
    return [
        {
            "trial": course.number,
            "epoch": told.epoch,
            "seconds": told.now,
            "epochs_trained": told.trained,
            **_config(course),
            **{f"metric.{name}": value for name, value in told.metrics.items()},
        }
        for course in chronicle.courses
        for told in course.reports
    ]
