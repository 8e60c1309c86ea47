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

_BATCH = 1000  # metrics that MLflow accepts per call
_PARAMS = 100  # … and params
_LONGEST = 250  # characters of a name
_STATES = {"complete": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "running": "RUNNING"}


def to_mlflow(history: StudyTimeline, path: Path) -> Path:
    """Write an SQLite tracking store; ``mlflow ui --backend-store-uri sqlite:///FILE`` shows it.

    A path without a suffix is a folder, with `mlflow.db` in it. An experiment of this name must not be there yet.
    """
    file = path if path.suffix else path / "mlflow.db"
    mlflow = _mlflow()
    file.parent.mkdir(exist_ok=True)
    with _quiet():
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{file.absolute()}")
        if client.get_experiment_by_name(history.name) is not None:
            raise ReportError(f"{file}: it already has an experiment {history.name!r}; choose another file")
        folder = (file.parent / "artifacts").absolute().as_uri()
        experiment = client.create_experiment(history.name, artifact_location=folder, tags=history.facts)
        names = [name for trial in history.trials for name in trial.config]
        names += [name for trial in history.trials for report in trial.reports for name in report.metrics]
        keys = _keys(names)
        for trial in history.trials:
            _run(mlflow, client, experiment, history, trial, keys)
        _forget(client)
    return file


def _run(
    mlflow: Any, client: Any, experiment: str, history: StudyTimeline, trial: TrialTimeline, keys: dict[str, str]
) -> None:
    entities = mlflow.entities
    best = history.best
    tags = {"state": trial.state, "trial": str(trial.number)}
    if best is not None and best.number == trial.number:
        tags["best"] = "yes"
    if trial.error:
        tags["error"] = trial.error[:5000]
    run = client.create_run(experiment, _millis(history, trial.begun), tags, f"trial {trial.number}")
    number = run.info.run_id
    metrics = [
        entities.Metric(keys[name], value, _millis(history, report.now), report.epoch)
        for report in trial.reports
        for name, value in report.metrics.items()
    ]
    params = [entities.Param(keys[name], str(value)[:6000]) for name, value in trial.config.items()]
    for start in range(0, len(params), _PARAMS):
        client.log_batch(number, params=params[start : start + _PARAMS])
    for start in range(0, len(metrics), _BATCH):
        client.log_batch(number, metrics=metrics[start : start + _BATCH])
    if trial.state != "running":
        client.set_terminated(number, _STATES[trial.state], _millis(history, trial.ended or trial.begun))


def _keys(names: Iterable[str]) -> dict[str, str]:
    """Return unique names for MLflow: unchanged if possible, else with invalid characters replaced.

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


def _millis(history: StudyTimeline, seconds: float) -> int:
    return round(1000 * (history.created + seconds))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress MLflow's messages about creating its tables."""
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
    """Close the database: MLflow otherwise keeps its connections until the process exits."""
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
