"""Rungs of halving searches: which trials reached them, and which were promoted."""

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


class _RungTrial(NamedTuple):
    """A trial at a rung: its value there, and whether it was granted more epochs."""

    trial: TrialTimeline
    value: float
    promoted: bool


def figure(history: StudyTimeline, dark: bool = False) -> Figure:
    """Draw a column of dots per rung: promoted trials, with lines to the next rung, and the others."""
    rungs = _rungs(history)
    with pages.drawing(dark, max(7.5, min(12.0, 2.6 + 1.7 * len(rungs))), 5.6) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="rung: granted epochs, and trials that reached it", y=history.metric)
        places = _dots(axes, rungs, theme)
        _lines(axes, rungs, places, theme)
        _best(axes, history, places, theme)
        names = [f"{count(epoch)}\n{counted(len(reached), 'trial')}" for epoch, reached in rungs.items()]
        axes.set_xticks(range(len(rungs)), labels=names)
        axes.set_xlim(-0.6, len(rungs) - 0.3)
        values = [entry.value for reached in rungs.values() for entry in reached]
        keep = [history.value(history.best.last)] if history.best else []
        limits = pages.value_limits(values, keep)
        axes.set_ylim(*limits)
        _legend(axes, theme)
        first, last = (len(reached) for reached in (next(iter(rungs.values())), list(rungs.values())[-1]))
        heading = f"{history.name}: of {counted(first, 'trial')} at the first rung, {count(last)} reached the last"
        spent = math.fsum(trial.epochs for trial in history.trials)
        whole = len(history.trials) * max(rungs)
        caption = f"Trials were trained for {spent:,.6g} epochs; training all to the last rung takes {whole:,.6g}. "
        pages.title(page, theme, heading, (caption + pages.off_the_page(values, limits)).rstrip())
    return page


def _rungs(history: StudyTimeline) -> dict[int, list[_RungTrial]]:
    """Return the trials that reached each granted number of epochs, in increasing order."""
    granted = sorted({until for trial in history.trials if len(trial.grants) > 1 for _, until in trial.grants})
    if len(granted) < 2:
        raise ReportError(
            f"rungs: all trials of {history.name!r} were granted their epochs at once; expected a search "
            "that grants more to some, such as SuccessiveHalving, Hyperband or ASHA"
        )
    rungs: dict[int, list[_RungTrial]] = {}
    for epoch in granted:
        reached = [
            _RungTrial(trial, history.value(report), max(until for _, until in trial.grants) > epoch)
            for trial in history.trials
            if any(until == epoch for _, until in trial.grants) and (report := trial.at(epoch)) is not None
        ]
        if reached:
            rungs[epoch] = reached
    if not rungs:
        history.with_reports("rungs")
        raise ReportError("rungs: no trial has reached a rung yet; expected at least one report at a rung")
    return rungs


def _dots(
    axes: Axes, rungs: dict[int, list[_RungTrial]], theme: Theme
) -> dict[tuple[int, int], tuple[float, float]]:
    """Draw the trials, and return the position of each trial at each rung."""
    places: dict[tuple[int, int], tuple[float, float]] = {}
    for index, (epoch, reached) in enumerate(rungs.items()):
        width = 0.5 if len(reached) > 12 else 0.2
        x = spread([float(index)] * len(reached), [entry.trial.number for entry in reached], width)
        for promoted in (False, True):
            chosen = [(at, s) for at, s in zip(x, reached, strict=True) if s.promoted == promoted]
            places.update({(epoch, entry.trial.number): (at, entry.value) for at, entry in chosen})
            last = index == len(rungs) - 1
            axes.scatter(
                [at for at, _ in chosen],
                [entry.value for _, entry in chosen],
                s=14 if len(reached) > 120 else 30,
                color=_colour(theme, promoted or last),
                alpha=0.9 if promoted or last else 0.55,
                linewidths=0,
                zorder=3 if promoted else 2,
            )
    return places


def _lines(
    axes: Axes,
    rungs: dict[int, list[_RungTrial]],
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
    axes: Axes, history: StudyTimeline, places: dict[tuple[int, int], tuple[float, float]], theme: Theme
) -> None:
    best = history.best
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


def _colour(theme: Theme, promoted: bool) -> str:
    return (theme.few[4] if theme.dark else theme.few[0]) if promoted else theme.muted


def _legend(axes: Axes, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    def mark(colour: str, label: str) -> Line2D:
        return Line2D([], [], color=colour, marker="o", linestyle="", markersize=6, label=label)

    handles = [
        mark(_colour(theme, True), "promoted, or reached the last rung"),
        mark(_colour(theme, False), "not promoted"),
        mark(theme.best, "the best"),
    ]
    axes.legend(
        handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9,
        labelcolor=theme.ink,
    )  # fmt: skip
