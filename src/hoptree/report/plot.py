"""Plots of a study: one function each, and each returns a matplotlib figure.

::

    ht.plot.curves(study)
    ht.plot.best(results, dark=True)
    ht.plot.save(ht.plot.tree(study), "tree.svg")

They need only the journal: they work while a study runs, and need neither its code nor its states.
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
    plot_nodes,
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
    "nodes",
    "parallel",
    "rungs",
    "save",
    "savings",
    "slices",
    "tree",
]


class Subject(Protocol):
    """What can be plotted: a study, its results, or a simulation."""

    def study_timeline(self) -> StudyTimeline:
        """Return its timeline."""
        ...


def curves(subject: Subject | StudyTimeline, *, metric: str | None = None, dark: bool = False) -> Figure:
    """Draw every trial's metric over its epochs."""
    return plot_curves.figure(_timeline(subject), metric, dark)


def best(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the best value so far, over time and over trained epochs."""
    return plot_best.figure(_timeline(subject), dark)


def parallel(subject: Subject | StudyTimeline, *, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw every trial as a line through its values; ``names`` chooses hyper-parameters."""
    return plot_parallel.figure(_timeline(subject), names, dark)


def importance(subject: Subject | StudyTimeline, *, evaluator: str = "ped-anova", dark: bool = False) -> Figure:
    """Draw how much each hyper-parameter matters, by one of Optuna's evaluators.

    ``evaluator`` is "ped-anova" (Optuna's own default), "fanova" or "mean-decrease".
    """
    return plot_importance.figure(_timeline(subject), evaluator, dark)


def slices(subject: Subject | StudyTimeline, *, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw the metric over each hyper-parameter by itself; ``names`` chooses hyper-parameters."""
    return plot_slices.figure(_timeline(subject), names, dark)


def tree(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the stage tree: epochs that trials share, where they branch, and their results."""
    return plot_tree.figure(_timeline(subject), dark)


def gantt(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw what each worker did and when, and the hops between them."""
    return plot_gantt.figure(_timeline(subject), dark)


def savings(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw over time the epochs that trials received, and those that were trained."""
    return plot_savings.figure(_timeline(subject), dark)


def rungs(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the rungs of a halving search: which trials reached them, and which were promoted."""
    return plot_rungs.figure(_timeline(subject), dark)


def nodes(subject: Subject | StudyTimeline, *, dark: bool = False) -> Figure:
    """Draw the nodes of a study and their cost over time, beside what was planned."""
    return plot_nodes.figure(_timeline(subject), dark)


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
    "nodes": nodes,
}


def _timeline(subject: Subject | StudyTimeline) -> StudyTimeline:
    return subject if isinstance(subject, StudyTimeline) else subject.study_timeline()
