"""The Gantt chart of a timeline for a terminal, readable with and without colour."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from hoptree.report.axis import time_axis
from hoptree.report.colours import lane_colour, symbol
from hoptree.report.tables import count, duration, percent, printable, to_text
from hoptree.report.timeline import ReportError, Timeline, mean

MOST_ROWS = 40
LEAST_WIDTH = 24
_LEGEND_LINES = 4
_UTILISATION = len(" 100 %")
_IDLE = "·"
_SIGNS: dict[str, str] = {"evaluation": "+", "hop": ">", "failed": "x", "down": "▒"}

# The content of a cell: a kind and a lane, or nothing.
Cell = tuple[str, int] | None


def terminal(timeline: Timeline, width: int = 100, colour: bool = True, legend: bool = True) -> str:
    """Draw one row per worker, one cell per slice of time; no line is wider than `width`.

    A cell shows what fills most of it, and is idle if less than half of it is filled.
    """
    if width < LEAST_WIDTH:
        raise ReportError(f"width: {width} columns; a chart needs at least {LEAST_WIDTH}; widen the terminal")
    if not timeline.workers:
        return "No worker has joined yet, so there is nothing to draw."
    shown = timeline.workers[:MOST_ROWS]
    utilisation = timeline.utilisation()
    margin = min(max(cell_len(printable(name)) for name in shown), max(4, width // 5)) + 1
    cells = width - margin - _UTILISATION

    rows = _paint(timeline, shown, cells)
    lines = [Text(headline(timeline, utilisation), style="bold")]
    for worker, row in zip(shown, rows, strict=True):
        line = Text(_fit(worker, margin - 1) + " ")
        for content, same in itertools.groupby(row):
            line.append(_sign(content) * len(list(same)), style=_style(content))
        lines.append(line.append(percent(utilisation[worker]).rjust(_UTILISATION), style="dim"))
    folded = timeline.workers[len(shown) :]
    if folded:
        busy = percent(mean(utilisation[worker] for worker in folded))
        more = f"{count(len(folded))} more worker{'s' if len(folded) > 1 else ''}"
        lines.append(Text(f"… {more}, mean utilisation {busy}", style="dim"))
    lines.extend(_axis(timeline.makespan, margin, cells, width))
    if legend:
        lines.extend(_legend(timeline, rows, width))
    return to_text(Text("\n").join(_cropped(lines, width)), width, colour)


def headline(timeline: Timeline, utilisation: dict[str, float]) -> str:
    """Summarize the chart in one line."""
    workers = len(timeline.workers)
    return (
        f"{count(workers)} worker{'' if workers == 1 else 's'} · makespan {duration(timeline.makespan)} · "
        f"mean utilisation {percent(mean(utilisation.values()))}"
    )


def _paint(timeline: Timeline, shown: Sequence[str], cells: int) -> list[list[Cell]]:
    """Return the content of each cell of each row, in one pass over the spans."""
    if not timeline.makespan:
        return [[None] * cells for _ in shown]
    shares: dict[str, list[dict[tuple[str, int], float]]]
    shares = {worker: [{} for _ in range(cells)] for worker in shown}
    for span in timeline.spans:
        row = shares.get(span.worker)
        if row is None:
            continue
        start, end = span.start / timeline.makespan * cells, min(1.0, span.end / timeline.makespan) * cells
        content = (span.kind, span.lane)
        for i in range(int(start), min(math.ceil(end), cells)):
            share = min(end, i + 1) - max(start, i)
            if share > 0:
                row[i][content] = row[i].get(content, 0.0) + share
    return [[_winner(cell) for cell in shares[worker]] for worker in shown]


def _winner(shares: dict[tuple[str, int], float]) -> Cell:
    if sum(shares.values()) < 0.5:
        return None
    return max(shares, key=shares.__getitem__)


def _sign(content: Cell) -> str:
    if content is None:
        return _IDLE
    kind, lane = content
    return symbol(lane) if kind == "unit" else _SIGNS[kind]


def _style(content: Cell) -> str:
    match content:
        case None | ("down", _):
            return "dim"
        case ("failed", _):
            return "bold #ffffff on #b3261e"
        case ("hop", lane):
            return lane_colour(lane)
        case ("evaluation", lane):
            return f"bold #1b1b1f on {lane_colour(lane)}"
        case (_, lane):
            return f"#1b1b1f on {lane_colour(lane)}"


def _axis(makespan: float, margin: int, cells: int, width: int) -> Iterator[Text]:
    """Draw a ruler below the rows; skip a label that would touch its neighbour or not fit."""
    axis = time_axis(makespan, at_most=max(1, cells // 11))
    ruler, labels = ["─"] * cells, ""
    for seconds, label in zip(axis.seconds, axis.labels, strict=True):
        at = round(seconds / makespan * cells) if makespan else 0
        # The tick of the makespan itself belongs at the end of the last cell.
        ruler[min(at, cells - 1)] = "┬"
        text = f"{label} {axis.unit}"
        start = min(at, cells - 1)
        if (not labels or len(labels) + 1 < start) and margin + start + len(text) <= width:
            labels = labels.ljust(start) + text
    yield Text(" " * margin + "".join(ruler), style="dim")
    yield Text(" " * margin + labels, style="dim")


def _legend(timeline: Timeline, rows: list[list[Cell]], width: int) -> Iterator[Text]:
    """Explain the symbols that are used, then the lanes on a few lines, and count those that are left out."""
    seen = {content[0] for row in rows for content in row if content}
    yield _line([Text(f"{_IDLE} idle"), *(Text(f"{sign} {kind}") for kind, sign in _SIGNS.items() if kind in seen)])
    lanes = [
        Text.assemble((symbol(lane), _style(("unit", lane))), " " + printable(label))
        for lane, label in timeline.lanes().items()
    ]
    lines: list[list[Text]] = [[]]
    for i, entry in enumerate(lanes):
        rest = Text(f"… {count(len(lanes) - i)} more")
        last = len(lines) == _LEGEND_LINES
        needed = [*lines[-1], entry, rest] if last and i + 1 < len(lanes) else [*lines[-1], entry]
        if lines[-1] and _line(needed).cell_len > width:
            if last:
                lines[-1].append(rest)
                break
            lines.append([])
        lines[-1].append(entry)
    yield from (_line(line) for line in lines if line)


def _line(entries: Iterable[Text]) -> Text:
    return Text("   ").join(entries)


def _fit(name: str, width: int) -> str:
    text = Text(printable(name))
    text.truncate(width, overflow="ellipsis", pad=True)
    return text.plain


def _cropped(lines: Iterable[Text], width: int) -> Iterator[Text]:
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        yield line
