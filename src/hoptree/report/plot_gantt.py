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

_MOST_HOPS = 400  # lines that can be distinguished


def figure(history: StudyTimeline, dark: bool = False) -> Figure:
    """Draw what each worker did, and a line for every hop if there are not too many."""
    timeline = history.timeline
    if not timeline.spans:
        raise ReportError(f"gantt: no worker has done anything for {history.name!r} yet; run the study first")
    page = gantt_figure.figure(timeline, dark)
    axes = page.axes[0]
    theme = theme_of(dark)
    if 0 < len(history.hops) <= _MOST_HOPS:
        from matplotlib.collections import LineCollection

        row = {worker: float(index) for index, worker in enumerate(timeline.workers)}
        lines = [
            [(hop.left, row[hop.source]), (hop.begun, row[hop.worker])]
            for hop in history.hops
            if hop.source in row and hop.worker in row
        ]
        axes.add_collection(
            LineCollection(lines, colors=theme.ink, linewidths=0.7, alpha=0.55, zorder=5), autolim=False
        )
    busy = mean(timeline.utilisation().values())
    workers = len(timeline.workers)
    heading = (
        f"{history.name}: {counted(workers, 'worker')} busy {percent(busy)} of "
        f"{duration(timeline.makespan)}, {counted(len(history.hops), 'hop')}"
    )
    axes.set_title(
        "\n".join(headline(heading, page.get_figwidth() - 1)),
        loc="left",
        fontsize=13,
        color=theme.ink,
        weight="bold",
        pad=12,
        parse_math=False,
    )
    return page
