"""A study as an MLflow experiment with one run per trial."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

from hoptree.core.errors import MissingExtraError
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from hoptree.report.timeline import ReportError

_BATCH = 1000  # metrics that MLflow takes at once
_PARAMS = 100  # … and params
_LONGEST = 250  # letters of a name
_STATES = {"complete": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "running": "RUNNING"}


def to_mlflow(chronicle: StudyTimeline, path: Path) -> Path:
    """Write an SQLite tracking store; ``mlflow ui --backend-store-uri sqlite:///FILE`` shows it.

    A path without a suffix is a folder, with `mlflow.db` in it. An experiment of this name must not be there yet.
    """
    file = path if path.suffix else path / "mlflow.db"
    mlflow = _mlflow()
    file.parent.mkdir(exist_ok=True)
    with _quiet():
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{file.absolute()}")
        if client.get_experiment_by_name(chronicle.name) is not None:
            raise ReportError(f"{file}: it has an experiment {chronicle.name!r} already; choose another file")
        folder = (file.parent / "artifacts").absolute().as_uri()
        experiment = client.create_experiment(chronicle.name, artifact_location=folder, tags=chronicle.facts)
        names = [name for course in chronicle.courses for name in course.config]
        names += [name for course in chronicle.courses for told in course.reports for name in told.metrics]
        keys = _keys(names)
        for course in chronicle.courses:
            _run(mlflow, client, experiment, chronicle, course, keys)
        _forget(client)
    return file


def _run(
    mlflow: Any, client: Any, experiment: str, chronicle: StudyTimeline, course: TrialTimeline, keys: dict[str, str]
) -> None:
    entities = mlflow.entities
    best = chronicle.best
    tags = {"state": course.state, "trial": str(course.number)}
    if best is not None and best.number == course.number:
        tags["best"] = "yes"
    if course.error:
        tags["error"] = course.error[:5000]
    run = client.create_run(experiment, _millis(chronicle, course.begun), tags, f"trial {course.number}")
    number = run.info.run_id
    metrics = [
        entities.Metric(keys[name], value, _millis(chronicle, told.now), told.epoch)
        for told in course.reports
        for name, value in told.metrics.items()
    ]
    params = [entities.Param(keys[name], str(value)[:6000]) for name, value in course.config.items()]
    for start in range(0, len(params), _PARAMS):
        client.log_batch(number, params=params[start : start + _PARAMS])
    for start in range(0, len(metrics), _BATCH):
        client.log_batch(number, metrics=metrics[start : start + _BATCH])
    if course.state != "running":
        client.set_terminated(number, _STATES[course.state], _millis(chronicle, course.ended or course.begun))


def _keys(names: Iterable[str]) -> dict[str, str]:
    """Return names as MLflow takes them: as they are, or without the letters that it refuses; no two become one.

    >>> _keys(["lr", "f1 (macro)", "top@5", "top#5", "../x"])
    {'lr': 'lr', 'f1 (macro)': 'f1 _macro_', 'top@5': 'top_5', 'top#5': 'top_5 2', '../x': 'x'}
    """
    keys: dict[str, str] = {}
    for name in dict.fromkeys(names):
        parts = re.sub(r"[^/\w.\- ]", "_", name).split("/")
        fit = "/".join(part for part in parts if part not in ("", ".", ".."))[:_LONGEST].rstrip("/") or "_"
        others = (f"{fit[: _LONGEST - 8]} {number}" for number in count(2))
        taken = set(keys.values())
        keys[name] = next(key for key in chain([fit], others) if key not in taken)
    return keys


def _millis(chronicle: StudyTimeline, seconds: float) -> int:
    return round(1000 * (chronicle.created + seconds))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow from telling how it makes its tables."""
    names = ("mlflow", "alembic")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _forget(client: Any) -> None:
    """Let go of the database: MLflow keeps its connections for the life of the process."""
    engine = getattr(client._tracking_client.store, "engine", None)
    if engine is not None:
        engine.dispose()


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.entities
        from mlflow import MlflowClient  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "mlflow is not installed; its tracking store needs it: pip install 'hoptree[mlflow]'"
        ) from error
    return mlflow
