"""Exports a study for other programs. Each kind is one function of a timeline and a path."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.timeline import ReportError

__all__ = ["KINDS", "export", "kind_of"]

# Kind, module, function. Modules are imported on use; another kind is one line here.
KINDS: Final[dict[str, tuple[str, str]]] = {
    "csv": ("hoptree.exports.tables", "to_csv"),
    "parquet": ("hoptree.exports.tables", "to_parquet"),
    "tensorboard": ("hoptree.exports.to_tensorboard", "to_tensorboard"),
    "mlflow": ("hoptree.exports.to_mlflow", "to_mlflow"),
    "html": ("hoptree.exports.page", "to_html"),
}
_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".html": "html"}


def export(history: StudyTimeline, kind: str, path: str | Path, **options: Any) -> Path:
    """Write a study as one of ``KINDS``, and return the path."""
    if kind not in KINDS:
        raise ReportError(
            f"kind: {kind!r}; expected one of {', '.join(KINDS)}, safetensors or pt; "
            "an Optuna storage is written by study.mirror(url), or by hoptree export"
        )
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise ReportError(f"{path}: the folder {path.absolute().parent} does not exist; create it first")
    module, function = KINDS[kind]
    write: Callable[..., Path] = getattr(import_module(module), function)
    return write(history, path, **options)


def kind_of(path: str | Path) -> str | None:
    """Return the kind of a path's suffix, if any.

    >>> kind_of("trials.csv"), kind_of("runs")
    ('csv', None)
    """
    return _SUFFIXES.get(Path(path).suffix)
