"""The Gantt chart of a timeline for a page: SVG or PNG, light or dark."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoptree.report.axis import time_axis
from hoptree.report.colours import lane_colour
from hoptree.report.gantt_text import headline
from hoptree.report.page import Theme, check_suffix, drawing
from hoptree.report.page import save as save_page
from hoptree.report.tables import percent, printable
from hoptree.report.timeline import Span, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

_MOST_IN_LEGEND = 16
_MOST_WORKER_NAMES = 40
_MOST_WRITING = 500
_MOST_OUTLINES = 4_000
_MOST_VECTORS = 20_000
# The vertical extent of a bar, from the middle of its row; a hop is thin, because it may overlap a unit.
_HEIGHT: dict[str, tuple[float, float]] = {
    "down": (-0.4, 0.4),
    "unit": (-0.4, 0.4),
    "evaluation": (-0.4, 0.4),
    "failed": (-0.4, 0.4),
    "hop": (0.26, 0.4),
}


def figure(timeline: Timeline, dark: bool = False) -> "Figure":
    """Draw one row per worker and one bar per span, coloured by lane, without pyplot and its global state."""
    rows = max(1, len(timeline.workers))
    with drawing(dark, 11, min(14.0, 1.9 + 0.3 * max(rows, 2))) as (page, theme):
        page.set_layout_engine("constrained", w_pad=0.14, h_pad=0.07)
        axes = page.add_subplot(facecolor=theme.page)
        _rows(axes, timeline, theme)
        for kind in _HEIGHT:
            _bars(axes, timeline, kind, theme)
        _writing(axes, timeline)
        _frame(axes, timeline, theme)
        _legend(page, timeline, theme)
    return page


def save(timeline: Timeline, path: str | Path, dark: bool = False) -> None:
    """Write the chart as `.svg`, `.png` or `.pdf`, by the suffix; the same timeline gives the same bytes."""
    check_suffix(path)
    save_page(figure(timeline, dark), path)


def _rows(axes: "Axes", timeline: Timeline, theme: Theme) -> None:
    """Draw a light track per worker, so that idle time appears as a gap."""
    rows = range(len(timeline.workers))
    if rows and timeline.makespan:
        axes.barh(
            rows, timeline.makespan, height=0.8 * _stretch(timeline), color=theme.track, linewidth=0, zorder=0
        )


def _stretch(timeline: Timeline) -> float:
    """Return how much taller bars are: with many rows, the gaps between them would dominate."""
    return 1.25 if len(timeline.workers) > 2 * _MOST_WORKER_NAMES else 1.0


def _bars(axes: "Axes", timeline: Timeline, kind: str, theme: Theme) -> None:
    """Draw all spans of a kind as one collection: tens of thousands of artists would take minutes."""
    spans = [span for span in timeline.spans if span.kind == kind]
    if not spans:
        return
    axes.add_collection(_collection(timeline, kind, spans, theme), autolim=False)


def _collection(timeline: Timeline, kind: str, spans: Sequence[Span], theme: Theme) -> "PolyCollection":
    import numpy as np
    from matplotlib.collections import PolyCollection

    row = {worker: i for i, worker in enumerate(timeline.workers)}
    low, high = (_stretch(timeline) * height for height in _HEIGHT[kind])
    middle = np.array([row[span.worker] for span in spans], dtype=float)
    start = np.array([span.start for span in spans])
    end = np.array([span.end for span in spans])
    corners = [(start, middle + low), (start, middle + high), (end, middle + high), (end, middle + low)]
    vertices = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    few = len(timeline.spans) <= _MOST_OUTLINES and len(timeline.workers) <= 2 * _MOST_WORKER_NAMES
    bars = PolyCollection(
        list(vertices), linewidths=0.6 if few else 0.0, edgecolors=theme.page, antialiaseds=few, zorder=2
    )
    bars.set_rasterized(len(timeline.spans) > _MOST_VECTORS)
    _style(bars, kind, spans, theme)
    return bars


def _style(bars: "PolyCollection", kind: str, spans: Sequence[Span], theme: Theme) -> None:
    match kind:
        case "down":
            bars.set(facecolor=theme.page, edgecolor=theme.down, hatch="/////", linewidth=0.0)
        case "failed":
            bars.set(facecolor=theme.page, edgecolor=theme.failed, hatch="xxxxx", linewidth=0.8, zorder=3)
        case _:
            colours = {lane: _shade(kind, lane, theme) for lane in {span.lane for span in spans}}
            bars.set_facecolor([colours[span.lane] for span in spans])


def _shade(kind: str, lane: int, theme: Theme) -> str:
    """Return the lane's colour: lighter for an evaluation, darker for a hop so that it stands out on a unit."""
    match kind:
        case "evaluation":
            return _mix(lane_colour(lane), theme.page, 0.6)
        case "hop":
            return _mix(lane_colour(lane), theme.ink, 0.55)
        case _:
            return lane_colour(lane)


def _mix(colour: str, other: str, share: float) -> str:
    pairs = ((int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _writing(axes: "Axes", timeline: Timeline) -> None:
    """Write the last word of the label in every bar that is wide enough, unless there are too many."""
    if len(timeline.workers) > _MOST_WORKER_NAMES or not timeline.makespan:
        return
    row = {worker: i for i, worker in enumerate(timeline.workers)}
    words = [(span, (printable(span.label).split() or [""])[-1]) for span in timeline.spans if span.kind == "unit"]
    wide = [(s, word) for s, word in words if (s.end - s.start) / timeline.makespan > 0.005 + 0.007 * len(word)]
    if len(wide) > _MOST_WRITING:
        return
    for span, word in wide:
        axes.text(
            (span.start + span.end) / 2,
            row[span.worker],
            word,
            ha="center",
            va="center_baseline",
            fontsize=7.5,
            color="#1f2430",
            parse_math=False,
            clip_on=True,
            zorder=4,
        )


def _frame(axes: "Axes", timeline: Timeline, theme: Theme) -> None:
    """Draw title, axes and the utilisation of every worker."""
    workers, utilisation = timeline.workers, timeline.utilisation()
    axes.set_title(headline(timeline, utilisation), loc="left", fontsize=12, color=theme.ink, weight="bold", pad=12)
    axis = time_axis(timeline.makespan, at_most=12)
    axes.set_xlim(0, timeline.makespan or 1)
    axes.set_xticks(axis.seconds, labels=list(axis.labels))
    axes.set_xlabel(f"time ({axis.unit})", color=theme.muted)
    axes.set_ylim(max(1, len(workers)) - 0.4, -0.6)
    named = range(0, len(workers), _every(len(workers)))
    axes.set_yticks(list(named), labels=[printable(workers[i]) for i in named], parse_math=False)
    axes.set_ylabel("worker", color=theme.muted)
    axes.tick_params(colors=theme.muted, labelcolor=theme.ink, length=3, labelsize=9)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=theme.grid, linewidth=0.6, zorder=1)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.grid)
    if 0 < len(workers) <= _MOST_WORKER_NAMES:
        _utilisation(axes, [utilisation[worker] for worker in workers], theme)


def _utilisation(axes: "Axes", shares: Iterable[float], theme: Theme) -> None:
    look: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "fontsize": 9, "color": theme.muted}
    axes.text(1.055, -0.62, "busy", ha="right", va="bottom", **look)
    for i, share in enumerate(shares):
        axes.text(1.055, i, percent(share), ha="right", va="center", **look)


def _every(workers: int) -> int:
    return next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, workers) if workers <= step * _MOST_WORKER_NAMES
    )


def _legend(page: "Figure", timeline: Timeline, theme: Theme) -> None:
    """List the lanes, if they are few enough to be distinguished, and the kinds that are not units."""
    from matplotlib.patches import Patch

    lanes = timeline.lanes()
    kinds = {span.kind for span in timeline.spans}
    entries: list[Patch] = []
    if len(lanes) <= _MOST_IN_LEGEND:
        entries += [Patch(facecolor=lane_colour(lane), label=printable(label)) for lane, label in lanes.items()]
    if "evaluation" in kinds:
        entries.append(Patch(facecolor=_mix(theme.muted, theme.page, 0.6), label="evaluation"))
    if "hop" in kinds:
        entries.append(Patch(facecolor=_mix(theme.muted, theme.ink, 0.55), label="hop"))
    if "failed" in kinds:
        entries.append(Patch(facecolor=theme.page, edgecolor=theme.failed, hatch="xxxxx", label="failed"))
    if "down" in kinds:
        entries.append(
            Patch(
                facecolor=theme.page,
                edgecolor=theme.down,
                hatch="/////",
                linewidth=0.0,
                label="worker absent",
            )
        )
    if not entries:
        return
    legend = page.legend(
        handles=entries,
        loc="outside lower center",
        ncols=min(len(entries), 8),
        frameon=False,
        fontsize=9,
        labelcolor=theme.ink,
        handlelength=1.2,
        handleheight=0.9,
        columnspacing=1.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
