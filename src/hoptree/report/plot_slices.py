"""Slices: the metric over each hyper-parameter by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hoptree.report import page as pages
from hoptree.report.columns import ParameterColumn, spread
from hoptree.report.page import Theme
from hoptree.report.plot_parallel import chosen
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from hoptree.report.tables import count, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 12
_IN_A_ROW = 4
_MOST_TICKS = 8


def figure(history: StudyTimeline, names: Sequence[str] | None = None, dark: bool = False) -> Figure:
    """Draw a panel per hyper-parameter and a dot per trial, coloured by the epochs that it reached."""
    trials = [c for c in history.with_reports("slices") if math.isfinite(history.value(c.last))]
    drawn = chosen(history, trials, names, "slices", longest=12)
    columns = drawn.columns[:_MOST]
    across = min(_IN_A_ROW, len(columns))
    down = -(-len(columns) // across)
    with pages.drawing(dark, max(6.4, 3.0 * across + 0.8), 1.4 + 2.7 * down) as (page, theme):
        grid = page.subplots(down, across, sharey=True, squeeze=False)
        for index, panel in enumerate(grid.flat):
            if index < len(columns):
                first = index % across == 0
                _panel(panel, history, trials, columns[index], theme, history.metric if first else "")
            else:
                panel.set_visible(False)
        values = [history.value(trial.last) for trial in trials]
        best = history.best
        limits = pages.value_limits(values, [history.value(best.last)] if best else [])
        grid.flat[0].set_ylim(*limits)
        _epochs_bar(page, theme, grid, trials)
        caption = f"Each dot is one of {count(len(trials))} trials at its last report"
        at = "" if best is None else f"; the best, trial {best.number}, is ringed"
        notes = f"{drawn.left_out(len(columns))} {pages.off_the_page(values, limits)}".strip()
        pages.title(
            page,
            theme,
            f"{history.name}: {history.metric} by each hyper-parameter",
            f"{caption}{at}. {notes}".rstrip(),
        )
    return page


def _most(trials: Sequence[TrialTimeline]) -> int:
    return max(trial.epochs for trial in trials)


def _panel(
    axes: Axes,
    history: StudyTimeline,
    trials: Sequence[TrialTimeline],
    each: ParameterColumn,
    theme: Theme,
    y: str,
) -> None:
    numbers = [trial.number for trial in trials]
    options = each.kind == "options"
    x = spread(each.places, numbers) if options else list(each.places)
    values = [history.value(trial.last) for trial in trials]
    most = _most(trials)
    # Trials that were trained longer are drawn last, on top.
    order = sorted(range(len(trials)), key=lambda i: (trials[i].epochs, i))
    order = [i for i in order if math.isfinite(x[i])]
    pages.frame(axes, theme, x=printable(each.name), y=y)
    small = len(trials) > 120
    dots = axes.scatter(
        [x[i] for i in order],
        [values[i] for i in order],
        c=[trials[i].epochs for i in order],
        cmap=pages.scale_of(theme),
        vmin=0,
        vmax=most,
        s=12 if small else 30,
        alpha=0.85,
        linewidths=0,
        zorder=3,
    )
    dots.set_rasterized(len(order) > 5_000)
    best = history.best
    if best is not None and best.number in numbers:
        at = numbers.index(best.number)
        if math.isfinite(x[at]):
            ring: dict[str, Any] = {"facecolors": "none", "edgecolors": theme.best, "linewidths": 1.8}
            axes.scatter([x[at]], [values[at]], s=85, zorder=4, **ring)
    low, high = each.span
    margin = 0.55 if options else 0.06 * ((high - low) or 1.0)
    axes.set_xlim(low - margin, high + margin)
    step = -(-len(each.ticks) // _MOST_TICKS)
    ticks, labels = list(each.ticks[::step]), [printable(label) for label in each.labels[::step]]
    crowded = sum(map(len, labels)) > 26
    axes.set_xticks(ticks, labels=labels, parse_math=False)
    if crowded:
        axes.tick_params(axis="x", labelrotation=35, labelsize=8)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def _epochs_bar(page: Figure, theme: Theme, grid: Any, trials: Sequence[TrialTimeline]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    if len({trial.epochs for trial in trials}) == 1:
        return
    mappable = ScalarMappable(Normalize(0, _most(trials)), pages.scale_of(theme))
    found = page.colorbar(mappable, ax=list(grid.flat), pad=0.015, fraction=0.03, aspect=32)
    found.ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    found.ax.tick_params(colors=theme.grid, labelcolor=theme.ink, labelsize=8.5, length=3)
    found.set_label("epochs reached", color=theme.muted, fontsize=9)
    found.outline.set_visible(False)
