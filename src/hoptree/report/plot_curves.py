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

_NAMED = 7  # trials that get colours of their own, and names
_LONGEST = 46


def figure(chronicle: StudyTimeline, metric: str | None = None, dark: bool = False) -> Figure:
    """Draw one line per trial; few have a colour each, many are coloured by how good they ended."""
    metric = chronicle.check_metric(metric)
    courses = chronicle.with_reports("curves")
    best = chronicle.best
    with pages.drawing(dark) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="epoch", y=metric)
        if len(courses) <= _NAMED:
            _few(axes, chronicle, courses, metric, theme)
        else:
            _many(page, axes, chronicle, courses, metric, theme)
        notes = [_limits(axes, chronicle, courses, metric), _failures(axes, chronicle, courses, metric, theme)]
        beneath = " ".join(part for part in (_beneath(chronicle, courses), *notes) if part)
        pages.title(page, theme, _headline(chronicle, courses, metric, best), beneath)
    return page


def _headline(
    chronicle: StudyTimeline, courses: Sequence[TrialTimeline], metric: str, best: TrialTimeline | None
) -> str:
    whose = f"{count(len(courses))} trials over their" if len(courses) > 1 else "1 trial over its"
    what = f"{metric} of {whose} epochs"
    if best is None or not math.isfinite(chronicle.value(best.last, metric)):
        return f"{chronicle.name}: {what}"
    return f"{chronicle.name}: {what}; trial {best.number} ends best at {chronicle.value(best.last, metric):.4g}"


def _beneath(chronicle: StudyTimeline, courses: Sequence[TrialTimeline]) -> str:
    states = [course.state for course in chronicle.courses]
    counts = ", ".join(f"{count(states.count(state))} {state}" for state in dict.fromkeys(states))
    silent = len(chronicle.courses) - len(courses)
    shared = any(len(twig.trials) > 1 for twig in chronicle.twigs)
    return (
        f"{counts}{f'; {silent} without a report are not drawn' if silent else ''}."
        f"{' Trials lie on one line as long as they share their training.' if shared else ''}"
    )


def _line(chronicle: StudyTimeline, course: TrialTimeline, metric: str) -> list[tuple[float, float]]:
    return [(told.epoch, chronicle.value(told, metric)) for told in course.reports]


def _few(axes: Axes, chronicle: StudyTimeline, courses: Sequence[TrialTimeline], metric: str, theme: Theme) -> None:
    searched = chronicle.searched
    for course, colour in zip(courses, theme.few, strict=False):
        x, y = zip(*_line(chronicle, course, metric), strict=True)
        is_best = course is chronicle.best
        label = f"{course.number}: {described(course.config, searched)}".rstrip(": ")
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
    page: Figure, axes: Axes, chronicle: StudyTimeline, courses: Sequence[TrialTimeline], metric: str, theme: Theme
) -> None:
    from matplotlib.collections import LineCollection

    losses = {course.number: chronicle.loss(chronicle.value(course.last)) for course in courses}
    ordered = sorted(courses, key=lambda course: (-losses[course.number], course.number))
    norm, scale = pages.norm_of(list(losses.values())), pages.scale_of(theme)
    colours = [scale(norm(-losses[c.number]) if math.isfinite(losses[c.number]) else 0.0) for c in ordered]
    thin = len(courses) > 60
    lines = [_line(chronicle, course, metric) for course in ordered]
    axes.add_collection(
        LineCollection(
            lines, colors=colours, linewidths=0.7 if thin else 1.2, alpha=0.75 if thin else 0.95, zorder=2
        )
    )
    # A trial that has reported once only is a point.
    points = [(line[0], colour) for line, colour in zip(lines, colours, strict=True) if len(line) == 1]
    if points:
        x, y = zip(*(point for point, _ in points), strict=True)
        axes.scatter(x, y, c=[colour for _, colour in points], s=8, zorder=2, linewidths=0)
    best = chronicle.best
    if best is not None:
        _best(axes, _line(chronicle, best, metric), best.number, theme)
    pages.bar(page, theme, axes, list(losses.values()), f"last {chronicle.metric}", chronicle.maximize)


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


def _limits(axes: Axes, chronicle: StudyTimeline, courses: Sequence[TrialTimeline], metric: str) -> str:
    """Choose what the axes show, and say what they do not."""
    from matplotlib.ticker import MaxNLocator

    best = chronicle.best
    values = [chronicle.value(told, metric) for course in courses for told in course.reports]
    keep = [] if best is None else [chronicle.value(told, metric) for told in best.reports]
    limits = pages.value_limits(values, keep)
    axes.set_ylim(*limits)
    first = min(course.reports[0].epoch for course in courses)
    last = max(course.epochs for course in courses)
    room = 0.04 * (last - first) or 0.4  # a single epoch stands in the middle
    axes.set_xlim(first - room, last + (2.2 if len(courses) > _NAMED else 1.0) * room)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    return pages.off_the_page(values, limits)


def _failures(
    axes: Axes, chronicle: StudyTimeline, courses: Sequence[TrialTimeline], metric: str, theme: Theme
) -> str:
    """Mark where trials failed, and say how."""
    ends = [_line(chronicle, course, metric)[-1] for course in courses if course.state == "failed"]
    ends = [end for end in ends if math.isfinite(end[1])]
    if ends:
        x, y = zip(*ends, strict=True)
        axes.scatter(x, y, marker="x", s=34, c=theme.failed, linewidths=1.6, zorder=6, label="failed")
    return "A red x marks where a trial failed." if ends else ""
