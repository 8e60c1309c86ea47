"""The best value so far, over time and over trained epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hoptree.report import page as pages
from hoptree.report.axis import time_axis
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.tables import count, counted, duration
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Point(NamedTuple):
    now: float
    trained: float
    value: float
    trial: int
    failed: bool


def figure(history: StudyTimeline, dark: bool = False) -> Figure:
    """Draw every report as a dot and the best so far as a step line, over time and over trained epochs."""
    points = _points(history)
    stairs = _stairs(history, points)
    with pages.drawing(dark, 11, 5.0) as (page, theme):
        left, right = page.subplots(1, 2, sharey=True)
        end = max(history.timeline.makespan, points[-1].now)
        axis = time_axis(end, at_most=7)
        _panel(left, theme, [(p.now, p.value) for p in points], [(s.now, s.value) for s in stairs], end)
        left.set_xticks(axis.seconds, labels=list(axis.labels))
        pages.frame(left, theme, x=f"time ({axis.unit})", y=f"{history.metric}, best so far")
        trained = max(point.trained for point in points)
        _panel(
            right, theme, [(p.trained, p.value) for p in points], [(s.trained, s.value) for s in stairs], trained
        )
        pages.frame(right, theme, x="trained epochs of all trials")
        values = [point.value for point in points]
        limits = pages.value_limits(values, [stairs[-1].value])
        left.set_ylim(*limits)
        _name(left, theme, stairs[-1], stairs[-1].now, end)
        _name(right, theme, stairs[-1], stairs[-1].trained, trained)
        last = stairs[-1]
        heading = (
            f"{history.name}: {history.metric} {last.value:.4g} was found after {duration(last.now)} "
            f"and {_epochs(last.trained)} of training"
        )
        whole = max(trained, *(moment.trained for moment in history.progress[-1:]), 0.0)
        caption = (
            f"The best improved {counted(len(stairs), 'time')}; the study took {duration(end)} and trained "
            f"{_epochs(whole)}. {_dots(points)} {_in_the_end(history, last)}{pages.off_the_page(values, limits)}"
        )
        pages.title(page, theme, heading, caption.rstrip())
    return page


def _epochs(epochs: float) -> str:
    """Return a number of epochs as text, with fractions only if there are few."""
    return counted(round(epochs) if epochs >= 100 else float(f"{epochs:.3g}"), "epoch")


def _dots(points: Sequence[_Point]) -> str:
    return f"Dots are the {count(len(points))} reports." if len(points) > 1 else "The dot is the only report."


def _in_the_end(history: StudyTimeline, last: _Point) -> str:
    """Return a sentence on the best trial, if another trial had reported a better value earlier."""
    best = history.best
    if best is None or best.number == last.trial or not math.isfinite(value := history.value(best.last)):
        return ""
    return f"By its last report trial {best.number} is the best ({value:.4g}). "


def _points(history: StudyTimeline) -> list[_Point]:
    reports = [
        _Point(each.now, each.trained, history.value(each), trial_timeline.number, trial_timeline.state == "failed")
        for trial_timeline in history.with_reports("best")
        for each in trial_timeline.reports
    ]
    points = sorted(point for point in reports if math.isfinite(point.value))
    if not points:
        raise ReportError(
            f"best: no report of {history.name!r} has a finite {history.metric!r}; expected at least one"
        )
    return points


def _stairs(history: StudyTimeline, points: list[_Point]) -> list[_Point]:
    """Return the reports that improved on all earlier ones; of trials that have not failed, if there are any."""
    stairs: list[_Point] = []
    for point in [point for point in points if not point.failed] or points:
        if not stairs or history.loss(point.value) < history.loss(stairs[-1].value):
            stairs.append(point)
    return stairs


def _panel(
    axes: Axes, theme: Theme, points: list[tuple[float, float]], stairs: list[tuple[float, float]], end: float
) -> None:
    x, y = zip(*points, strict=True)
    many = len(points) > 400
    dots = axes.scatter(
        x, y, s=5 if many else 14, color=theme.muted, alpha=0.35 if many else 0.6, linewidths=0, zorder=2
    )
    dots.set_rasterized(len(points) > 5_000)
    x, y = zip(*stairs, (end, stairs[-1][1]), strict=True)
    axes.step(x, y, where="post", color=theme.few[0] if not theme.dark else theme.few[4], linewidth=2.2, zorder=3)
    axes.set_xlim(0, end * 1.02 or 1)


def _name(axes: Axes, theme: Theme, last: _Point, x: float, end: float) -> None:
    axes.scatter([x], [last.value], s=60, color=theme.best, edgecolors=theme.page, linewidths=1.2, zorder=5)
    right = x > 0.75 * end
    axes.annotate(
        f"trial {last.trial}",
        (x, last.value),
        xytext=(-8 if right else 8, 8),
        textcoords="offset points",
        ha="right" if right else "left",
        color=theme.best,
        fontsize=9,
        weight="bold",
        zorder=6,
    )
