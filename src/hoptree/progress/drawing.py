"""Scenes drawn for a terminal: never wider or higher than it, whatever is in them."""

from __future__ import annotations

import math

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from hoptree.progress.run_view import STARTS, RunView, TrialView
from hoptree.report.spark import sparkline
from hoptree.report.tables import NOTHING, duration, percent, printable

_HAND = 35  # columns for a worker and what it does
_CURVE = 12
_LABEL = 9
_NAME = 12  # columns at least for the names of studies
_TIME = 56  # columns for the percent and the time that is gone and left, in all but the longest runs


def draw(scene: RunView, width: int, height: int) -> list[Text]:
    """Return at most ``height`` lines of at most ``width`` columns."""
    lines = [*_head(scene, width), *_hands(scene, width, most=max(1, height // 4))]
    room = height - len(lines)
    if scene.rows and room >= 3:
        lines += _trials(scene, width, room)
    return [_fit(line, width) for line in lines[:height]]


def draw_end(scene: RunView, width: int) -> list[Text]:
    """Return the few lines that stay when a run is over; none of one that was refused."""
    lines = _head(scene, width, over=True) if any(scene.counts.values()) else []
    return [_fit(line, width) for line in lines]


# --- the head ---------------------------------------------------------------------------------------------


def _head(scene: RunView, width: int, over: bool = False) -> list[Text]:
    lines = [_title(scene, width, over)]
    lines.append(_labelled("trials", told_counts(scene)))
    lines += [_labelled("best", told_leader(scene, i)) for i in range(min(3, len(scene.leaders)))]
    lines.append(_labelled("epochs", told_work(scene)))
    return lines


def _title(scene: RunView, width: int, over: bool) -> Text:
    """Say how far it is, after the names of the studies and a bar, as far as these leave room for it.

    The bar does not jump when the text beside it changes: the terminal alone decides its width.
    """
    names, told, bar = study_names(scene), told_time(scene, over), []
    if scene.fraction is not None:
        told = f" {percent(scene.fraction):>5}  {told}"
        columns = max(0, min(40, width - _TIME - cell_len(names) - 2))
        full = min(columns, round(scene.fraction * columns))
        bar = [("━" * full, "green"), ("─" * (columns - full), "bright_black")]
    name = Text(names, "bold")
    name.truncate(max(_NAME, width - cell_len(told) - 2), overflow="ellipsis")
    return Text.assemble(name, "  ", *bar, told)


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{_LABEL}}", "cyan"), printable(text))


def study_names(scene: RunView) -> str:
    """Return the names of the studies that run together."""
    return printable(" + ".join(scene.studies))


def told_progress(scene: RunView, over: bool = False) -> str:
    """Say how far it is, if that is known, and the time."""
    done = "" if scene.fraction is None else f"{percent(scene.fraction)}, "
    return f"{done}{told_time(scene, over)}"


def told_time(scene: RunView, over: bool = False) -> str:
    """Say how long it has taken, and how long it will take."""
    if over:
        return f"in {duration(scene.elapsed)}"
    if scene.left is None:
        return f"{_clock(scene.elapsed)} gone"
    least, expected, most = map(_clock, scene.left)
    if scene.open_ended:
        return f"{_clock(scene.elapsed)} gone, at least {expected} left"
    return f"{_clock(scene.elapsed)} gone, {expected} left ({least} to {most})"


def told_counts(scene: RunView) -> str:
    """Say how many trials are in which state."""
    found = [f"{count:,} {state}" for state, count in scene.counts.items() if count]
    starting = bool(scene.hands) and all(hand.doing == STARTS for hand in scene.hands)
    return ", ".join([*(found or ["none yet"]), *(["workers are starting"] if starting else [])])


def told_leader(scene: RunView, index: int = 0) -> str:
    """Say which trial is the best so far."""
    leader = scene.leaders[index]
    study = f" of {leader.study}" if len(scene.studies) > 1 else ""
    return f"trial {leader.number}{study}: {leader.metric} {number(leader.value)} ({leader.config})"


def told_work(scene: RunView) -> str:
    """Say what was asked for, and what of it is saved."""
    shared = scene.epochs_asked - scene.epochs_unique
    saved = f", {shared:,g} of them shared ({percent(shared / scene.epochs_asked)} saved)" if shared > 0 else ""
    return f"{scene.epochs_asked:,g} asked{saved}, {round(scene.epochs_trained, 2):,g} trained now"


def number(value: float) -> str:
    """Return a metric in five significant digits at most, with as many columns from one report to the next.

    >>> number(0.98), number(12.3456), number(float("nan"))
    ('0.9800', '12.346', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    if 1e-3 <= abs(value) < 1e4 or value == 0:
        digits = 4 if abs(value) < 10 else 3 if abs(value) < 100 else 1
        return f"{value:.{digits}f}"
    return f"{value:.3e}"


def _clock(seconds: float) -> str:
    """Say a time in whole seconds, so that it is not another text ten times a second.

    >>> _clock(3.7), _clock(250.2)
    ('3 s', '4 min 10 s')
    """
    return f"{int(seconds)} s" if seconds < 59.95 else duration(seconds)


# --- the workers ------------------------------------------------------------------------------------------


def _hands(scene: RunView, width: int, most: int) -> list[Text]:
    room = max(1, (width - _LABEL) // _HAND)
    cells = [f"{hand.name} {hand.doing}" for hand in scene.hands]
    if len(cells) > room * most:
        keep = room * most - 1
        idle = sum(hand.doing == "idle" for hand in scene.hands[keep:])
        cells = [*cells[:keep], f"and {len(cells) - keep:,} more" + (f", {idle:,} idle" if idle else "")]
    lines = []
    for first in range(0, len(cells), room):
        row = "".join(set_cell_size(cell, _HAND - 1) + " " for cell in cells[first : first + room])
        lines.append(_labelled("" if first else "workers", row))
    return lines


# --- the trials -------------------------------------------------------------------------------------------


def _trials(scene: RunView, width: int, room: int) -> list[Text]:
    total = len(scene.rows) + scene.hidden
    shown = scene.rows if total <= room - 1 else scene.rows[: max(0, room - 2)]
    numbers = max(5, *(len(f"{row.number:,}") for row in scene.rows))
    names = max(cell_len(printable(row.study)) for row in scene.rows) if len(scene.studies) > 1 else 0
    metric = printable(scene.metrics[0] if len(scene.metrics) == 1 else "goal")
    value = max(10, min(16, cell_len(metric)))
    curve = _CURVE if width < 120 else 2 * _CURVE
    title = f"{'trial':>{numbers}}  {'study':<{names}}" if names else f"{'trial':>{numbers}}"
    title = f"{title}  {'epochs':>9}  {_right(metric, value)}  {'curve':<{curve}}  {'now':<7}  config"
    lines = [Text(title, "bright_black"), *(_trial(row, numbers, names, value, curve) for row in shown)]
    if total > len(shown):
        lines.append(Text(f"and {total - len(shown):,} more", "bright_black"))
    return lines


def _trial(row: TrialView, numbers: int, names: int, value: int, curve: int) -> Text:
    last = number(row.values[-1]) if row.values else NOTHING
    now = row.by[0] + (f" +{len(row.by) - 1}" if len(row.by) > 1 else "") if row.by else ""
    study = f"  {set_cell_size(printable(row.study), names)}" if names else ""
    return Text.assemble(
        f"{row.number:>{numbers},}{study}  {f'{row.epochs:,}/{row.until:,}':>9}  {last:>{value}}  ",
        (f"{sparkline(row.values, curve):<{curve}}", "green"),
        "  ",
        (f"{now:<7}", "yellow"),
        (f"  {printable(row.config)}", "" if row.by else "bright_black"),
    )


def _right(text: str, width: int) -> str:
    text = set_cell_size(text, width) if cell_len(text) > width else text
    return " " * (width - cell_len(text)) + text


def _fit(line: Text, width: int) -> Text:
    """Cut a line to the width: nothing wraps."""
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return line
