"""The Gantt chart of a study: workers, units, and the hops between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.report import gantt_figure
from hoptree.report.page import headline, theme_of
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.tables import counted, duration, percent
from hoptree.report.timeline import ReportError, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_HOPS = 400  # lines that can be told apart


def figure(chronicle: StudyTimeline, dark: bool = False) -> Figure:
    """Draw what every worker did, and, while they can be told apart, a line for every hop."""
    timeline = chronicle.timeline
    if not timeline.spans:
        raise ReportError(f"gantt: no worker has done anything for {chronicle.name!r} yet; run the study first")
    page = gantt_figure.figure(timeline, dark)
    axes = page.axes[0]
    theme = theme_of(dark)
    if 0 < len(chronicle.hops) <= _MOST_HOPS:
        from matplotlib.collections import LineCollection

        row = {worker: float(index) for index, worker in enumerate(timeline.workers)}
        lines = [
            [(hop.left, row[hop.source]), (hop.begun, row[hop.worker])]
            for hop in chronicle.hops
            if hop.source in row and hop.worker in row
        ]
        axes.add_collection(
            LineCollection(lines, colors=theme.ink, linewidths=0.7, alpha=0.55, zorder=5), autolim=False
        )
    busy = mean(timeline.utilisation().values())
    workers = len(timeline.workers)
    said = (
        f"{chronicle.name}: {counted(workers, 'worker')} busy {percent(busy)} of "
        f"{duration(timeline.makespan)}, {counted(len(chronicle.hops), 'hop')}"
    )
    axes.set_title(
        "\n".join(headline(said, page.get_figwidth() - 1)),
        loc="left",
        fontsize=13,
        color=theme.ink,
        weight="bold",
        pad=12,
        parse_math=False,
    )
    return page
