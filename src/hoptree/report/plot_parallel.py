"""Parallel coordinates: every trial is a line through its values and its result."""

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


def figure(history: StudyTimeline, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw the hyper-parameters in which trials differ (or those in ``names``) and the metric as parallel axes."""
    trials = [c for c in history.with_reports("parallel") if math.isfinite(history.value(c.last))]
    drawn = chosen(history, trials, names, "parallel")
    columns = drawn.columns[:_MOST]
    with pages.drawing(dark, 11, 5.6) as (page, theme):
        axes = page.add_subplot()
        _lines(axes, history, trials, columns, theme)
        _axes(axes, history, trials, columns, theme)
        losses = [history.loss(history.value(trial.last)) for trial in trials]
        if len(trials) > 1:
            pages.bar(page, theme, axes, losses, history.metric, history.maximize)
        best = history.best
        found = "".join(f"; trial {trial.number} is the best" for trial in trials if trial is best)
        caption = f"{_explained(columns)} {drawn.left_out(len(columns))}".rstrip()
        pages.title(page, theme, f"{history.name}: the values of {count(len(trials))} trials{found}", caption)
    return page


class ChosenAxes(NamedTuple):
    """The axes that may be drawn, and the names of hyper-parameters with the same value in all trials."""

    columns: list[ParameterColumn]
    constant: list[str]

    def left_out(self, drawn: int) -> str:
        """Return a sentence on what is not drawn."""
        parts = [f"Not drawn, because all trials agree: {pages.listed(self.constant)}."] if self.constant else []
        if left := len(self.columns) - drawn:
            parts.append(f"{left} more axes are not drawn: select axes with names.")
        return " ".join(parts)


def chosen(
    history: StudyTimeline,
    trials: Sequence[TrialTimeline],
    names: Sequence[str] | None,
    what: str,
    longest: int = 18,
) -> ChosenAxes:
    """Return the axes to draw: of the hyper-parameters in ``names``, else of those in which trials differ."""
    if not trials:
        raise ReportError(f"{what}: no trial has a finite {history.metric!r}; expected at least one")
    searched = history.searched
    known = {name for trial in history.trials for name in trial.config}
    for name in names or ():
        if name not in known:
            raise ReportError(
                f"names: {name!r}; expected hyper-parameters of the study: {', '.join(sorted(known))}"
            )
    if names:
        return ChosenAxes([each for name in names for each in columns_of(name, trials, longest)], [])
    found = [each for name in searched for each in columns_of(name, trials, longest)]
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
    """Return where lines cross an axis, from 0 to 1; missing values are below."""
    low, high = each.span
    places: Sequence[float] = each.places
    if each.kind == "options":
        places = places if each.constant else spread(places, numbers, width=0.5)
        low, high = low - 0.5, high + 0.5
    width = (high - low) or 1.0
    return [-0.08 if math.isnan(place) else (place - low) / width for place in places]


def _lines(
    axes: Axes,
    history: StudyTimeline,
    trials: Sequence[TrialTimeline],
    columns: Sequence[ParameterColumn],
    theme: Theme,
) -> None:
    import numpy as np
    from matplotlib.collections import LineCollection

    values = [history.value(trial.last) for trial in trials]
    low, high = pages.value_limits(values, [history.value(history.best.last)] if history.best else [])
    numbers = [trial.number for trial in trials]
    ends = [min(1.0, max(0.0, (value - low) / (high - low))) for value in values]
    ends = ends if history.maximize else [1 - end for end in ends]
    heights = np.array([*(_heights(each, numbers) for each in columns), ends]).T
    losses = [history.loss(value) for value in values]
    order = sorted(range(len(trials)), key=lambda i: (-losses[i], i))
    norm, scale = pages.norm_of(losses), pages.scale_of(theme)
    thin = len(trials) > 60
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
    if history.best is not None and history.best.number in numbers:
        number = numbers.index(history.best.number)
        for colour, width, above in ((theme.page, 4.6, 3), (theme.best, 2.4, 4)):
            axes.plot(*_smooth(heights[number]).T, color=colour, linewidth=width, zorder=above)


def _smooth(heights: Any) -> Any:
    """Return a line that crosses every axis horizontally, so that crossing lines can be distinguished."""
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
    history: StudyTimeline,
    trials: Sequence[TrialTimeline],
    columns: Sequence[ParameterColumn],
    theme: Theme,
) -> None:
    """Draw the axes, with their names below and their values beside them."""
    for index, each in enumerate(columns):
        low, high = each.span
        if each.kind == "options":
            low, high = low - 0.5, high + 0.5
        marks = [
            ((tick - low) / ((high - low) or 1.0), label)
            for tick, label in zip(each.ticks, each.labels, strict=True)
        ]
        _axis(axes, index, _thinned(marks), theme)
    values = [history.value(trial.last) for trial in trials]
    low, high = pages.value_limits(values, [history.value(history.best.last)] if history.best else [])
    from matplotlib.ticker import MaxNLocator

    ticks = [tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high]
    marks = [((tick - low) / (high - low), f"{tick:.4g}") for tick in ticks]
    _axis(axes, len(columns), marks if history.maximize else [(1 - at, text) for at, text in marks], theme)
    names = [*(printable(each.name) for each in columns), history.metric]
    axes.set_xticks(range(len(names)), labels=names, parse_math=False)
    axes.tick_params(axis="x", length=0, labelcolor=theme.ink, labelsize=10, pad=6)
    axes.set_yticks([])
    axes.set_facecolor(theme.page)
    axes.spines[:].set_visible(False)
    axes.set_xlim(-0.25, len(columns) + 0.3)
    lacking = any(math.isnan(place) for each in columns for place in each.places)
    axes.set_ylim(-0.12 if lacking else -0.02, 1.03)


def _thinned(marks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Skip labels that would overlap."""
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
