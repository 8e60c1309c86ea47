"""A study as TensorBoard's event files: curves, and the table of its HParams tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hoptree.core.errors import MissingExtraError
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from hoptree.report.timeline import ReportError


def to_tensorboard(history: StudyTimeline, path: Path) -> Path:
    """Write a folder with one run per trial; ``tensorboard --logdir`` shows it.

    Steps are epochs; wall times are those of the reports.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ReportError(
            f"{path}: it is there already; expected a new or an empty folder, since the event files of two exports "
            "would add up"
        )
    board = _tensorboard()
    path.mkdir(exist_ok=True)
    width = len(str(max(0, len(history.trials) - 1)))
    _write(board, path, [(history.created, 0, _experiment(board, history))])
    for trial in history.trials:
        _write(board, path / f"trial-{trial.number:0{width}}", _run(board, history, trial))
    return path


def _run(board: Any, history: StudyTimeline, trial: TrialTimeline) -> list[tuple[float, int, Any]]:
    values = {name: _plain(value) for name, value in trial.config.items()}
    name = f"{history.name} {trial.number}"
    begun = history.created + trial.begun
    ended = history.created + (trial.begun if trial.ended is None else trial.ended)
    found = [(begun, 0, board.hparams.hparams_pb(values, trial_id=name, start_time_secs=begun))]
    for report in trial.reports:
        for metric, value in report.metrics.items():
            found.append((history.created + report.now, report.epoch, board.scalar_pb(metric, value)))
    info = board.plugin_data.SessionEndInfo(
        status={"complete": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}.get(trial.state, "STATUS_UNKNOWN"),
        end_time_secs=ended,
    )
    data = board.plugin_data.HParamsPluginData(session_end_info=info, version=board.metadata.PLUGIN_DATA_VERSION)
    found.append((ended, trial.epochs, _summary(board, "_hparams_/session_end_info", data)))
    return found


def _experiment(board: Any, history: StudyTimeline) -> Any:
    """Say which hyper-parameters and metrics the table has."""
    options: dict[str, dict[Any, None]] = {}
    for trial in history.trials:
        for name, value in trial.config.items():
            options.setdefault(name, {})[_plain(value)] = None
    params = [board.hparams.HParam(name, _domain(board, list(values))) for name, values in options.items()]
    metrics = [board.hparams.Metric(name) for name in history.metrics]
    return board.hparams.hparams_config_pb(params, metrics)


def _domain(board: Any, values: list[Any]) -> Any:
    """Return numbers as an interval, everything else as options; mixed ones have no domain that it knows."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return board.hparams.RealInterval(float(min(values)), float(max(values)))
    return board.hparams.Discrete(values) if len({type(value) for value in values}) == 1 else None


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else str(value)


def _summary(board: Any, tag: str, data: Any) -> Any:
    summary = board.summary.Summary()
    summary.value.add(
        tag=tag, metadata=board.metadata.create_summary_metadata(data), tensor=board.metadata.NULL_TENSOR
    )
    return summary


def _write(board: Any, folder: Path, entries: list[tuple[float, int, Any]]) -> None:
    writer = board.EventFileWriter(str(folder))
    try:
        for now, step, summary in entries:
            writer.add_event(board.event.Event(wall_time=now, step=step, summary=summary))
    finally:
        writer.close()


def _tensorboard() -> Any:
    """Return the parts of the tensorboard package that write files; neither TensorFlow nor torch is needed."""
    from types import SimpleNamespace

    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2, summary_v2
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise MissingExtraError(
            "tensorboard is not installed; its event files need it: pip install 'hoptree[tensorboard]'"
        ) from error
    return SimpleNamespace(
        EventFileWriter=EventFileWriter,
        event=event_pb2,
        hparams=summary_v2,
        metadata=metadata,
        plugin_data=plugin_data_pb2,
        scalar_pb=scalar_pb,
        summary=summary_pb2,
    )
