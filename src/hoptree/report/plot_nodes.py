"""Nodes and cost over time, with what was planned beside what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.report import page as pages
from hoptree.report.axis import time_axis
from hoptree.report.nodes_over_time import NodesOverTime
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.tables import counted, duration, money
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figure(history: StudyTimeline, dark: bool = False) -> Figure:
    """Draw the number of nodes and what they cost over time; dashed lines are the first plan."""
    nodes = history.nodes
    if nodes is None or not nodes.nodes:
        raise ReportError(
            f"nodes: no node of {history.name!r} was paid for; expected a run with an instance, and a deadline or "
            "a budget"
        )
    end = max(nodes.nodes[-1][0], nodes.paid[-1][0], nodes.begun + nodes.planned_seconds[0])
    with pages.drawing(dark, 11, 5.0) as (page, theme):
        left, right = page.subplots(1, 2)
        _counts(left, theme, nodes, end)
        _costs(right, theme, nodes)
        axis = time_axis(end, at_most=6)
        for panel, name in ((left, "nodes"), (right, "cost in dollars")):
            panel.set_xlim(0, end or 1)
            panel.set_xticks(axis.seconds, labels=list(axis.labels))
            pages.frame(panel, theme, x=f"time ({axis.unit})", y=name)
        pages.title(page, theme, _headline(history, nodes), _CAPTION)
    return page


_CAPTION = (
    "Left: nodes that were paid for; thin lines are the beginnings of stages. Right: what was paid by then. "
    "Dashed: the first plan; the cross has its ranges of time and cost."
)


def _headline(history: StudyTimeline, nodes: NodesOverTime) -> str:
    paid = f"{history.name}: {money(nodes.money)} for at most {counted(nodes.most, 'node')} at a time"
    if not nodes.planned:
        return paid
    return f"{paid}; planned {money(nodes.planned_cost[0])} in {duration(nodes.planned_seconds[0])}"


def _counts(axes: Axes, theme: Theme, nodes: NodesOverTime, end: float) -> None:
    happened, planned = _colours(theme)
    for stage in nodes.stages:
        axes.axvline(stage, color=theme.grid, linewidth=0.8, zorder=1)
    if nodes.planned:
        axes.step(
            [now for now, _ in nodes.planned],
            [count for _, count in nodes.planned],
            where="post",
            color=planned,
            linewidth=1.8,
            linestyle="--",
            zorder=2,
        )
    x = [now for now, _ in nodes.nodes]
    y = [count for _, count in nodes.nodes]
    axes.fill_between([*x, end], [*y, y[-1]], step="post", color=happened, alpha=0.18, linewidth=0, zorder=1)
    axes.step([*x, end], [*y, y[-1]], where="post", color=happened, linewidth=2.2, zorder=3)
    axes.set_ylim(0, 1.1 * max(nodes.most, *(count for _, count in nodes.planned), 1))
    axes.locator_params(axis="y", integer=True)


def _costs(axes: Axes, theme: Theme, nodes: NodesOverTime) -> None:
    happened, planned = _colours(theme)
    axes.plot(
        [now for now, _ in nodes.paid], [paid for _, paid in nodes.paid], color=happened, linewidth=2.2, zorder=3
    )
    top = nodes.money
    if nodes.planned:
        (cost, least, most), (seconds, soonest, latest) = nodes.planned_cost, nodes.planned_seconds
        at = nodes.begun + seconds
        axes.axhline(cost, color=planned, linewidth=1.2, linestyle="--", zorder=2)
        axes.errorbar(
            [at],
            [cost],
            xerr=[[max(0.0, seconds - soonest)], [max(0.0, latest - seconds)]],
            yerr=[[max(0.0, cost - least)], [max(0.0, most - cost)]],
            color=planned,
            marker="o",
            markersize=5,
            linewidth=1.5,
            zorder=4,
        )
        top = max(top, most)
    axes.set_ylim(0, 1.1 * top or 1)


def _colours(theme: Theme) -> tuple[str, str]:
    return (theme.few[4], theme.best) if theme.dark else (theme.few[0], theme.best)
