"""Parallel coordinates: every trial a line through its values and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hoptree.report import page as pages
from hoptree.report.columns import ParameterColumn, spread
from hoptree.report.columns import columns as columns_of
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from hoptree.report.tables import count, printable
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 10  # axes that can be read on one page


def figure(chronicle: StudyTimeline, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw the hyper-parameters in which trials differ (or those named) and the metric as axes side by side."""
    courses = [c for c in chronicle.with_reports("parallel") if math.isfinite(chronicle.value(c.last))]
    drawn = chosen(chronicle, courses, names, "parallel")
    columns = drawn.columns[:_MOST]
    with pages.drawing(dark, 11, 5.6) as (page, theme):
        axes = page.add_subplot()
        _lines(axes, chronicle, courses, columns, theme)
        _axes(axes, chronicle, courses, columns, theme)
        losses = [chronicle.loss(chronicle.value(course.last)) for course in courses]
        if len(courses) > 1:
            pages.bar(page, theme, axes, losses, chronicle.metric, chronicle.maximize)
        best = chronicle.best
        found = "".join(f"; trial {course.number} is the best" for course in courses if course is best)
        beneath = f"{_explained(columns)} {drawn.left_out(len(columns))}".rstrip()
        pages.title(page, theme, f"{chronicle.name}: the values of {count(len(courses))} trials{found}", beneath)
    return page


class ChosenAxes(NamedTuple):
    """The axes that may be drawn, and the names of those that would say nothing: all trials have one value."""

    columns: list[ParameterColumn]
    constant: list[str]

    def left_out(self, drawn: int) -> str:
        """Say what is not drawn."""
        parts = [f"The same in all, so not drawn: {pages.listed(self.constant)}."] if self.constant else []
        if left := len(self.columns) - drawn:
            parts.append(f"{left} more axes are not drawn: choose with names.")
        return " ".join(parts)


def chosen(
    chronicle: StudyTimeline,
    courses: Sequence[TrialTimeline],
    names: Sequence[str] | None,
    what: str,
    longest: int = 18,
) -> ChosenAxes:
    """Return the axes to draw of trials: of the hyper-parameters named, else of those in which trials differ."""
    if not courses:
        raise ReportError(f"{what}: no trial has a finite {chronicle.metric!r}; expected at least one")
    searched = chronicle.searched
    known = {name for course in chronicle.courses for name in course.config}
    for name in names or ():
        if name not in known:
            raise ReportError(
                f"names: {name!r}; expected hyper-parameters of the study: {', '.join(sorted(known))}"
            )
    if names:
        return ChosenAxes([each for name in names for each in columns_of(name, courses, longest)], [])
    found = [each for name in searched for each in columns_of(name, courses, longest)]
    different = [each for each in found if not each.constant]
    if not different:
        raise ReportError(f"{what}: all trials have the same values; expected a hyper-parameter that differs")
    return ChosenAxes(different, [each.name for each in found if each.constant])


def _explained(columns: Sequence[ParameterColumn]) -> str:
    parts = ["One line per trial, coloured by its last report; the best is drawn last."]
    if any(math.isnan(place) for each in columns for place in each.places):
        parts.append("Below an axis: trials without that value.")
    return " ".join(parts)


def _heights(each: ParameterColumn, numbers: Sequence[int]) -> list[float]:
    """Return where lines cross an axis, from 0 to 1; what a config lacks is below."""
    low, high = each.span
    places: Sequence[float] = each.places
    if each.kind == "options":
        places = places if each.constant else spread(places, numbers, width=0.5)
        low, high = low - 0.5, high + 0.5
    width = (high - low) or 1.0
    return [-0.08 if math.isnan(place) else (place - low) / width for place in places]


def _lines(
    axes: Axes,
    chronicle: StudyTimeline,
    courses: Sequence[TrialTimeline],
    columns: Sequence[ParameterColumn],
    theme: Theme,
) -> None:
    import numpy as np
    from matplotlib.collections import LineCollection

    values = [chronicle.value(course.last) for course in courses]
    low, high = pages.value_limits(values, [chronicle.value(chronicle.best.last)] if chronicle.best else [])
    numbers = [course.number for course in courses]
    ends = [min(1.0, max(0.0, (value - low) / (high - low))) for value in values]
    ends = ends if chronicle.maximize else [1 - end for end in ends]
    heights = np.array([*(_heights(each, numbers) for each in columns), ends]).T
    losses = [chronicle.loss(value) for value in values]
    order = sorted(range(len(courses)), key=lambda i: (-losses[i], i))
    norm, scale = pages.norm_of(losses), pages.scale_of(theme)
    thin = len(courses) > 60
    smooth = [_smooth(heights[i]) for i in order]
    axes.add_collection(
        LineCollection(
            smooth,
            colors=[scale(norm(-losses[i])) for i in order],
            linewidths=0.8 if thin else 1.5,
            alpha=0.6 if thin else 0.9,
            zorder=2,
        )
    )
    if chronicle.best is not None and chronicle.best.number in numbers:
        number = numbers.index(chronicle.best.number)
        for colour, width, above in ((theme.page, 4.6, 3), (theme.best, 2.4, 4)):
            axes.plot(*_smooth(heights[number]).T, color=colour, linewidth=width, zorder=above)


def _smooth(heights: Any) -> Any:
    """Return a line that leaves every axis straight: crossing ones can be followed."""
    import numpy as np

    t = np.linspace(0.0, 1.0, 20)
    ease = t * t * (3 - 2 * t)
    parts = [
        np.stack([index + t, low + (high - low) * ease], axis=1)
        for index, (low, high) in enumerate(pairwise(heights))
    ]
    return np.concatenate(parts)


def _axes(
    axes: Axes,
    chronicle: StudyTimeline,
    courses: Sequence[TrialTimeline],
    columns: Sequence[ParameterColumn],
    theme: Theme,
) -> None:
    """Draw the axes, their names beneath and their values beside them."""
    for index, each in enumerate(columns):
        low, high = each.span
        if each.kind == "options":
            low, high = low - 0.5, high + 0.5
        marks = [
            ((tick - low) / ((high - low) or 1.0), label)
            for tick, label in zip(each.ticks, each.labels, strict=True)
        ]
        _axis(axes, index, _thinned(marks), theme)
    values = [chronicle.value(course.last) for course in courses]
    low, high = pages.value_limits(values, [chronicle.value(chronicle.best.last)] if chronicle.best else [])
    from matplotlib.ticker import MaxNLocator

    ticks = [tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high]
    marks = [((tick - low) / (high - low), f"{tick:.4g}") for tick in ticks]
    _axis(axes, len(columns), marks if chronicle.maximize else [(1 - at, text) for at, text in marks], theme)
    names = [*(printable(each.name) for each in columns), chronicle.metric]
    axes.set_xticks(range(len(names)), labels=names, parse_math=False)
    axes.tick_params(axis="x", length=0, labelcolor=theme.ink, labelsize=10, pad=6)
    axes.set_yticks([])
    axes.set_facecolor(theme.page)
    axes.spines[:].set_visible(False)
    axes.set_xlim(-0.25, len(columns) + 0.3)
    lacking = any(math.isnan(place) for each in columns for place in each.places)
    axes.set_ylim(-0.12 if lacking else -0.02, 1.03)


def _thinned(marks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out labels that would stand on one another."""
    step = -(-len(marks) // 14)
    return marks[::step]


def _axis(axes: Axes, index: int, marks: Sequence[tuple[float, str]], theme: Theme) -> None:
    axes.plot([index, index], [0, 1], color=theme.muted, linewidth=1.0, zorder=5)
    for height, label in marks:
        axes.plot([index - 0.015, index + 0.015], [height, height], color=theme.muted, linewidth=1.0, zorder=5)
        axes.text(
            index + 0.03,
            height,
            printable(label),
            fontsize=8,
            va="center",
            color=theme.ink,
            zorder=6,
            parse_math=False,
            bbox={"facecolor": theme.page, "alpha": 0.92, "linewidth": 0, "pad": 0.8},
        )
