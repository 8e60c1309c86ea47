"""Cost and savings over time: epochs that trials received, and epochs that were trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hoptree.report import page as pages
from hoptree.report.axis import time_axis
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.tables import counted, duration, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figure(history: StudyTimeline, dark: bool = False) -> Figure:
    """Draw received against trained epochs, and the workers' time against that of training without sharing."""
    history.with_reports("savings")
    progress = history.progress
    last = progress[-1]
    end = max(history.timeline.makespan, last.now)
    now = [moment.now for moment in progress]
    with pages.drawing(dark, 11, 5.0) as (page, theme):
        left, right = page.subplots(1, 2)
        _gap(left, theme, now, [m.got for m in progress], [m.trained for m in progress], end)
        _name(left, theme, last.got, last.trained, (f"{last.got:,.6g} received", f"{last.trained:,.6g} trained"))
        _gap(right, theme, now, [m.alone for m in progress], [m.spent for m in progress], end)
        words = (f"{duration(last.alone)} unshared", f"{duration(last.spent)} spent")
        _name(right, theme, last.alone, last.spent, words)
        axis = time_axis(end, at_most=6)
        for panel, name in ((left, "epochs"), (right, "")):
            panel.set_xticks(axis.seconds, labels=list(axis.labels))
            pages.frame(panel, theme, x=f"time ({axis.unit})", y=name)
        work = time_axis(max(last.alone, last.spent), at_most=6)
        right.set_yticks(work.seconds, labels=list(work.labels))
        right.set_ylabel(f"training time of workers ({work.unit})", color=theme.muted, fontsize=9.5)
        pages.title(page, theme, _headline(history), _CAPTION)
    return page


_CAPTION = (
    "Left: epochs that trials received, and epochs that were trained for them. "
    "Right: the time of all units, and the time that training every trial by itself would take."
)


def _headline(history: StudyTimeline) -> str:
    last = history.progress[-1]
    saved = 1 - last.trained / last.got if last.got else 0.0
    if saved <= 0:
        return f"{history.name}: {counted(last.got, 'epoch')}, none of them shared"
    return f"{history.name}: {percent(saved)} of {counted(last.got, 'epoch')} did not have to be trained"


def _gap(
    axes: Axes, theme: Theme, now: Sequence[float], more: Sequence[float], less: Sequence[float], end: float
) -> None:
    got, trained = _colours(theme)
    x, more, less = [*now, end], [*more, more[-1]], [*less, less[-1]]
    saved = [high > low for high, low in zip(more, less, strict=True)]
    axes.fill_between(x, less, more, where=saved, step="post", color=got, alpha=0.18, linewidth=0, zorder=1)
    axes.step(x, more, where="post", color=got, linewidth=2.2, zorder=3)
    axes.step(x, less, where="post", color=trained, linewidth=2.2, zorder=3)
    axes.set_xlim(0, end or 1)
    axes.set_ylim(0, 1.06 * max(*more, *less) or 1)


def _name(axes: Axes, theme: Theme, more: float, less: float, words: tuple[str, str]) -> None:
    """Label both lines at their ends, without overlap."""
    top = axes.get_ylim()[1]
    places = pages.apart([less, more] if less <= more else [more, less], 0.06 * top, 0.03 * top, 0.97 * top)
    if less > more:
        places.reverse()
    for place, word, colour in zip(reversed(places), words, _colours(theme), strict=True):
        axes.annotate(
            word,
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            weight="bold",
            color=colour,
            annotation_clip=False,
        )


def _colours(theme: Theme) -> tuple[str, str]:
    return (theme.few[4], theme.best) if theme.dark else (theme.few[0], theme.best)
