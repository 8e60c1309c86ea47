"""Plots of a study: one function each, and each returns a matplotlib figure.

::

    ht.plot.curves(study)
    ht.plot.best(results, dark=True)
    ht.plot.save(ht.plot.tree(study), "tree.svg")

They are functions of the journal: they work while a study runs, and need neither its code nor its states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from hoptree.report import page as _page
from hoptree.report import (
    plot_best,
    plot_curves,
    plot_gantt,
    plot_importance,
    plot_parallel,
    plot_rungs,
    plot_savings,
    plot_slices,
    plot_tree,
)
from hoptree.report.study_timeline import StudyTimeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "KINDS",
    "Subject",
    "best",
    "curves",
    "gantt",
    "importance",
    "parallel",
    "rungs",
    "save",
    "savings",
    "slices",
    "tree",
]


class Subject(Protocol):
    """What can be plotted: a study, its results, or a simulation."""

    def chronicle(self) -> StudyTimeline:
        """Return what happened in it, and when."""
        ...


def curves(subject: Subject | StudyTimeline, *, metric: str | None = None, dark: bool = False) -> Figure:
    """Draw every trial's metric over its epochs."""
    return plot_curves.figure(_told(subject), metric, dark)


def best(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the best so far, over time and over epochs trained."""
    return plot_best.figure(_told(subject), dark)


def parallel(subject: Subject | StudyTimeline, *, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw every trial as a line through its values; ``names`` chooses hyper-parameters."""
    return plot_parallel.figure(_told(subject), names, dark)


def importance(subject: Subject | StudyTimeline, *, evaluator: str = "ped-anova", dark: bool = False) -> Figure:
    """Draw how much each hyper-parameter matters, by one of Optuna's evaluators.

    ``evaluator`` is "ped-anova" (Optuna's own default), "fanova" or "mean-decrease".
    """
    return plot_importance.figure(_told(subject), evaluator, dark)


def slices(subject: Subject | StudyTimeline, *, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw the metric over each hyper-parameter by itself; ``names`` chooses hyper-parameters."""
    return plot_slices.figure(_told(subject), names, dark)


def tree(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the stage tree: epochs that trials share, where they part, and what came of it."""
    return plot_tree.figure(_told(subject), dark)


def gantt(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw what every worker did and when, and the hops between them."""
    return plot_gantt.figure(_told(subject), dark)


def savings(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw over time what trials got, and what it took."""
    return plot_savings.figure(_told(subject), dark)


def rungs(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the rungs of a halving search: who got there, and who went on."""
    return plot_rungs.figure(_told(subject), dark)


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as `.svg`, `.png` or `.pdf`; the same figure gives the same bytes."""
    return _page.save(figure, path)


KINDS: Final[dict[str, Callable[..., Any]]] = {
    "curves": curves,
    "best": best,
    "parallel": parallel,
    "importance": importance,
    "slices": slices,
    "tree": tree,
    "gantt": gantt,
    "savings": savings,
    "rungs": rungs,
}


def _told(subject: Subject | StudyTimeline) -> StudyTimeline:
    return subject if isinstance(subject, StudyTimeline) else subject.chronicle()
