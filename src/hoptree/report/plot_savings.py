"""Cost and savings over time: what trials got, and what it took."""

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


def figure(chronicle: StudyTimeline, dark: bool = False) -> Figure:
    """Draw epochs that trials got against epochs trained, and the workers' time against that of trials alone."""
    chronicle.with_reports("savings")
    moments = chronicle.moments
    last = moments[-1]
    end = max(chronicle.timeline.makespan, last.now)
    now = [moment.now for moment in moments]
    with pages.drawing(dark, 11, 5.0) as (page, theme):
        left, right = page.subplots(1, 2)
        _gap(left, theme, now, [m.got for m in moments], [m.trained for m in moments], end)
        _name(left, theme, last.got, last.trained, (f"{last.got:,.6g} got", f"{last.trained:,.6g} trained"))
        _gap(right, theme, now, [m.alone for m in moments], [m.spent for m in moments], end)
        words = (f"{duration(last.alone)} alone", f"{duration(last.spent)} spent")
        _name(right, theme, last.alone, last.spent, words)
        axis = time_axis(end, at_most=6)
        for panel, name in ((left, "epochs"), (right, "")):
            panel.set_xticks(axis.seconds, labels=list(axis.labels))
            pages.frame(panel, theme, x=f"time ({axis.unit})", y=name)
        work = time_axis(max(last.alone, last.spent), at_most=6)
        right.set_yticks(work.seconds, labels=list(work.labels))
        right.set_ylabel(f"time that workers trained ({work.unit})", color=theme.muted, fontsize=9.5)
        pages.title(page, theme, _headline(chronicle), _BENEATH)
    return page


_BENEATH = (
    "Left: epochs that trials have behind them, and epochs trained for that. "
    "Right: the time that units took, and what they would have taken for each trial alone."
)


def _headline(chronicle: StudyTimeline) -> str:
    last = chronicle.moments[-1]
    saved = 1 - last.trained / last.got if last.got else 0.0
    if saved <= 0:
        return f"{chronicle.name}: {counted(last.got, 'epoch')}, and nothing to share among them"
    return f"{chronicle.name}: {percent(saved)} of {counted(last.got, 'epoch')} did not have to be trained"


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
    """Name both lines at their ends, apart from one another."""
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
