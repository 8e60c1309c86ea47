"""Learning curves: every trial's metric over its epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hoptree.report import page as pages
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline, described
from hoptree.report.tables import count, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMED = 7  # trials that get their own colour and name
_LONGEST = 46


def figure(history: StudyTimeline, metric: str | None = None, dark: bool = False) -> Figure:
    """Draw one line per trial; a few get a colour each, many are coloured by their last value."""
    metric = history.check_metric(metric)
    trials = history.with_reports("curves")
    best = history.best
    with pages.drawing(dark) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="epoch", y=metric)
        if len(trials) <= _NAMED:
            _few(axes, history, trials, metric, theme)
        else:
            _many(page, axes, history, trials, metric, theme)
        notes = [_limits(axes, history, trials, metric), _failures(axes, history, trials, metric, theme)]
        caption = " ".join(part for part in (_caption(history, trials), *notes) if part)
        pages.title(page, theme, _headline(history, trials, metric, best), caption)
    return page


def _headline(
    history: StudyTimeline, trials: Sequence[TrialTimeline], metric: str, best: TrialTimeline | None
) -> str:
    whose = f"{count(len(trials))} trials over their" if len(trials) > 1 else "1 trial over its"
    what = f"{metric} of {whose} epochs"
    if best is None or not math.isfinite(history.value(best.last, metric)):
        return f"{history.name}: {what}"
    return f"{history.name}: {what}; trial {best.number} ends best at {history.value(best.last, metric):.4g}"


def _caption(history: StudyTimeline, trials: Sequence[TrialTimeline]) -> str:
    states = [trial.state for trial in history.trials]
    counts = ", ".join(f"{count(states.count(state))} {state}" for state in dict.fromkeys(states))
    silent = len(history.trials) - len(trials)
    shared = any(len(tree_node.trials) > 1 for tree_node in history.tree)
    return (
        f"{counts}{f'; {silent} without a report are not drawn' if silent else ''}."
        f"{' Trials that share their training lie on one line.' if shared else ''}"
    )


def _line(history: StudyTimeline, trial: TrialTimeline, metric: str) -> list[tuple[float, float]]:
    return [(report.epoch, history.value(report, metric)) for report in trial.reports]


def _few(axes: Axes, history: StudyTimeline, trials: Sequence[TrialTimeline], metric: str, theme: Theme) -> None:
    searched = history.searched
    for trial, colour in zip(trials, theme.few, strict=False):
        x, y = zip(*_line(history, trial, metric), strict=True)
        is_best = trial is history.best
        label = f"{trial.number}: {described(trial.config, searched)}".rstrip(": ")
        axes.plot(
            x,
            y,
            color=colour,
            linewidth=2.6 if is_best else 1.6,
            marker="o",
            markersize=5 if is_best else 3.5,
            label=_cut(printable(label)) + (" (best)" if is_best else ""),
            zorder=4 if is_best else 3,
        )
    legend = axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, labelcolor=theme.ink,
        title="trial", alignment="left",
    )  # fmt: skip
    legend.get_title().set_color(theme.muted)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _many(
    page: Figure, axes: Axes, history: StudyTimeline, trials: Sequence[TrialTimeline], metric: str, theme: Theme
) -> None:
    from matplotlib.collections import LineCollection

    losses = {trial.number: history.loss(history.value(trial.last)) for trial in trials}
    ordered = sorted(trials, key=lambda trial: (-losses[trial.number], trial.number))
    norm, scale = pages.norm_of(list(losses.values())), pages.scale_of(theme)
    colours = [scale(norm(-losses[c.number]) if math.isfinite(losses[c.number]) else 0.0) for c in ordered]
    thin = len(trials) > 60
    lines = [_line(history, trial, metric) for trial in ordered]
    axes.add_collection(
        LineCollection(
            lines, colors=colours, linewidths=0.7 if thin else 1.2, alpha=0.75 if thin else 0.95, zorder=2
        )
    )
    # A trial with a single report is a point.
    points = [(line[0], colour) for line, colour in zip(lines, colours, strict=True) if len(line) == 1]
    if points:
        x, y = zip(*(point for point, _ in points), strict=True)
        axes.scatter(x, y, c=[colour for _, colour in points], s=8, zorder=2, linewidths=0)
    best = history.best
    if best is not None:
        _best(axes, _line(history, best, metric), best.number, theme)
    pages.bar(page, theme, axes, list(losses.values()), f"last {history.metric}", history.maximize)


def _best(axes: Axes, line: Sequence[tuple[float, float]], number: int, theme: Theme) -> None:
    x, y = zip(*line, strict=True)
    axes.plot(x, y, color=theme.page, linewidth=4.6, zorder=4, solid_capstyle="round")
    axes.plot(x, y, color=theme.best, linewidth=2.4, zorder=5, marker="o", markersize=3, label=f"trial {number}")
    axes.annotate(
        f"trial {number}",
        (x[-1], y[-1]),
        xytext=(6, 0),
        textcoords="offset points",
        color=theme.best,
        fontsize=9,
        weight="bold",
        va="center",
        annotation_clip=False,
        zorder=6,
    )


def _limits(axes: Axes, history: StudyTimeline, trials: Sequence[TrialTimeline], metric: str) -> str:
    """Set the limits of the axes, and return how many values they exclude."""
    from matplotlib.ticker import MaxNLocator

    best = history.best
    values = [history.value(report, metric) for trial in trials for report in trial.reports]
    keep = [] if best is None else [history.value(report, metric) for report in best.reports]
    limits = pages.value_limits(values, keep)
    axes.set_ylim(*limits)
    first = min(trial.reports[0].epoch for trial in trials)
    last = max(trial.epochs for trial in trials)
    room = 0.04 * (last - first) or 0.4  # a single epoch is centred
    axes.set_xlim(first - room, last + (2.2 if len(trials) > _NAMED else 1.0) * room)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    return pages.off_the_page(values, limits)


def _failures(
    axes: Axes, history: StudyTimeline, trials: Sequence[TrialTimeline], metric: str, theme: Theme
) -> str:
    """Mark where trials failed, and return the caption for the marks."""
    ends = [_line(history, trial, metric)[-1] for trial in trials if trial.state == "failed"]
    ends = [end for end in ends if math.isfinite(end[1])]
    if ends:
        x, y = zip(*ends, strict=True)
        axes.scatter(x, y, marker="x", s=34, c=theme.failed, linewidths=1.6, zorder=6, label="failed")
    return "A red x marks where a trial failed." if ends else ""
