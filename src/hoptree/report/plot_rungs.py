"""Rungs of halving searches: who reached which, and who went on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hoptree.report import page as pages
from hoptree.report.columns import spread
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from hoptree.report.tables import count, counted
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Stand(NamedTuple):
    """A trial at a rung: what it reported there, and whether it was granted more."""

    course: TrialTimeline
    value: float
    went_on: bool


def figure(chronicle: StudyTimeline, dark: bool = False) -> Figure:
    """Draw a column of dots per rung: those that went on, with lines to the next one, and those that did not."""
    rungs = _rungs(chronicle)
    with pages.drawing(dark, max(7.5, min(12.0, 2.6 + 1.7 * len(rungs))), 5.6) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="rung: epochs that were granted, and trials that got there", y=chronicle.metric)
        places = _dots(axes, rungs, theme)
        _lines(axes, rungs, places, theme)
        _best(axes, chronicle, places, theme)
        names = [f"{count(epoch)}\n{counted(len(stands), 'trial')}" for epoch, stands in rungs.items()]
        axes.set_xticks(range(len(rungs)), labels=names)
        axes.set_xlim(-0.6, len(rungs) - 0.3)
        values = [stand.value for stands in rungs.values() for stand in stands]
        keep = [chronicle.value(chronicle.best.last)] if chronicle.best else []
        limits = pages.value_limits(values, keep)
        axes.set_ylim(*limits)
        _legend(axes, theme)
        first, last = (len(stands) for stands in (next(iter(rungs.values())), list(rungs.values())[-1]))
        said = f"{chronicle.name}: of {counted(first, 'trial')} at the first rung, {count(last)} reached the last"
        spent = math.fsum(course.epochs for course in chronicle.courses)
        whole = len(chronicle.courses) * max(rungs)
        beneath = f"Trials got {spent:,.6g} epochs; all of them up to the last rung would have been {whole:,.6g}. "
        pages.title(page, theme, said, (beneath + pages.off_the_page(values, limits)).rstrip())
    return page


def _rungs(chronicle: StudyTimeline) -> dict[int, list[_Stand]]:
    """Return who stood at each of the epochs that trials were granted, the fewest epochs first."""
    granted = sorted(
        {until for course in chronicle.courses if len(course.grants) > 1 for _, until in course.grants}
    )
    if len(granted) < 2:
        raise ReportError(
            f"rungs: all trials of {chronicle.name!r} were granted their epochs at once; expected a search "
            "that grants more to some, such as SuccessiveHalving, Hyperband or ASHA"
        )
    rungs: dict[int, list[_Stand]] = {}
    for epoch in granted:
        stands = [
            _Stand(course, chronicle.value(told), max(until for _, until in course.grants) > epoch)
            for course in chronicle.courses
            if any(until == epoch for _, until in course.grants) and (told := course.at(epoch)) is not None
        ]
        if stands:
            rungs[epoch] = stands
    if not rungs:
        chronicle.with_reports("rungs")
        raise ReportError("rungs: no trial has reached a rung yet; expected at least one report at a rung")
    return rungs


def _dots(axes: Axes, rungs: dict[int, list[_Stand]], theme: Theme) -> dict[tuple[int, int], tuple[float, float]]:
    """Draw the trials, and return where each of them stands at which rung."""
    places: dict[tuple[int, int], tuple[float, float]] = {}
    for index, (epoch, stands) in enumerate(rungs.items()):
        width = 0.5 if len(stands) > 12 else 0.2
        x = spread([float(index)] * len(stands), [stand.course.number for stand in stands], width)
        for went_on in (False, True):
            chosen = [(at, s) for at, s in zip(x, stands, strict=True) if s.went_on == went_on]
            places.update({(epoch, stand.course.number): (at, stand.value) for at, stand in chosen})
            last = index == len(rungs) - 1
            axes.scatter(
                [at for at, _ in chosen],
                [stand.value for _, stand in chosen],
                s=14 if len(stands) > 120 else 30,
                color=_colour(theme, went_on or last),
                alpha=0.9 if went_on or last else 0.55,
                linewidths=0,
                zorder=3 if went_on else 2,
            )
    return places


def _lines(
    axes: Axes,
    rungs: dict[int, list[_Stand]],
    places: dict[tuple[int, int], tuple[float, float]],
    theme: Theme,
) -> None:
    from matplotlib.collections import LineCollection

    numbers = dict.fromkeys(number for _, number in places)
    every = [[places[epoch, number] for epoch in rungs if (epoch, number) in places] for number in numbers]
    lines = [line for line in every if len(line) > 1]
    alpha = 0.22 if len(lines) > 60 else 0.5
    axes.add_collection(LineCollection(lines, colors=_colour(theme, True), linewidths=0.8, alpha=alpha, zorder=1))


def _best(
    axes: Axes, chronicle: StudyTimeline, places: dict[tuple[int, int], tuple[float, float]], theme: Theme
) -> None:
    best = chronicle.best
    if best is None:
        return
    line = [place for (_, number), place in sorted(places.items()) if number == best.number]
    if line:
        x, y = zip(*line, strict=True)
        axes.plot(x, y, color=theme.best, linewidth=2.2, marker="o", markersize=6, zorder=5)
        axes.annotate(
            f"trial {best.number}",
            line[-1],
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            weight="bold",
            color=theme.best,
            zorder=6,
        )


def _colour(theme: Theme, went_on: bool) -> str:
    return (theme.few[4] if theme.dark else theme.few[0]) if went_on else theme.muted


def _legend(axes: Axes, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    def mark(colour: str, label: str) -> Line2D:
        return Line2D([], [], color=colour, marker="o", linestyle="", markersize=6, label=label)

    handles = [
        mark(_colour(theme, True), "went on, or reached the last rung"),
        mark(_colour(theme, False), "did not go on"),
        mark(theme.best, "the best"),
    ]
    axes.legend(
        handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9,
        labelcolor=theme.ink,
    )  # fmt: skip
