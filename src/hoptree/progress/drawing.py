"""Draws a view of a run as lines of text that always fit the terminal."""

from __future__ import annotations

import math

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from hoptree.progress.run_view import STARTING, RunView, TrialView
from hoptree.report.spark import sparkline
from hoptree.report.tables import NOTHING, duration, percent, printable

_WORKER = 35  # columns for a worker and what it does
_CURVE = 12
_LABEL = 9
_NAME = 12  # minimum columns for the names of studies
_TIME = 59  # columns for the percentage and the elapsed and remaining time, except in the longest runs


def draw(view: RunView, width: int, height: int) -> list[Text]:
    """Return at most ``height`` lines of at most ``width`` columns."""
    lines = [*_head(view, width), *_workers(view, width, most=max(1, height // 4))]
    room = height - len(lines)
    if view.rows and room >= 3:
        lines += _trials(view, width, room)
    return [_truncate(line, width) for line in lines[:height]]


def draw_end(view: RunView, width: int) -> list[Text]:
    """Return the few lines that remain when a run has ended; none for a run without trials."""
    lines = _head(view, width, over=True) if any(view.counts.values()) else []
    return [_truncate(line, width) for line in lines]


# --- the head ---------------------------------------------------------------------------------------------


def _head(view: RunView, width: int, over: bool = False) -> list[Text]:
    lines = [_title(view, width, over)]
    lines.append(_labelled("trials", counts_text(view)))
    lines += [_labelled("best", best_text(view, i)) for i in range(min(3, len(view.best_trials)))]
    lines.append(_labelled("epochs", work_text(view)))
    return lines


def _title(view: RunView, width: int, over: bool) -> Text:
    """Return the names of the studies, a progress bar and the time, shortened to fit.

    The bar's width depends on the terminal and the names only, so that it does not jump when the text changes.
    """
    names, progress, bar = study_names(view), time_text(view, over), []
    if view.fraction is not None:
        progress = f" {percent(view.fraction):>5}  {progress}"
        columns = max(0, min(40, width - _TIME - cell_len(names) - 2))
        full = min(columns, round(view.fraction * columns))
        bar = [("━" * full, "green"), ("─" * (columns - full), "bright_black")]
    name = Text(names, "bold")
    name.truncate(max(_NAME, width - cell_len(progress) - 2), overflow="ellipsis")
    return Text.assemble(name, "  ", *bar, progress)


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{_LABEL}}", "cyan"), printable(text))


def study_names(view: RunView) -> str:
    """Return the names of the studies that run together."""
    return printable(" + ".join(view.studies))


def progress_text(view: RunView, over: bool = False) -> str:
    """Return the finished fraction, if it is known, and the time."""
    done = "" if view.fraction is None else f"{percent(view.fraction)}, "
    return f"{done}{time_text(view, over)}"


def time_text(view: RunView, over: bool = False) -> str:
    """Return the elapsed and the remaining time."""
    if over:
        return f"in {duration(view.elapsed)}"
    if view.left is None:
        return f"{_clock(view.elapsed)} elapsed"
    least, expected, most = map(_clock, view.left)
    if view.open_ended:
        return f"{_clock(view.elapsed)} elapsed, at least {expected} left"
    return f"{_clock(view.elapsed)} elapsed, {expected} left ({least} to {most})"


def counts_text(view: RunView) -> str:
    """Return the number of trials per state."""
    found = [f"{count:,} {state}" for state, count in view.counts.items() if count]
    starting = bool(view.workers) and all(worker.doing == STARTING for worker in view.workers)
    return ", ".join([*(found or ["none yet"]), *(["workers are starting"] if starting else [])])


def best_text(view: RunView, index: int = 0) -> str:
    """Return the best trial so far, its value and config."""
    best = view.best_trials[index]
    study = f" of {best.study}" if len(view.studies) > 1 else ""
    return f"trial {best.number}{study}: {best.metric} {number(best.value)} ({best.config})"


def work_text(view: RunView) -> str:
    """Return the requested, shared and trained epochs."""
    shared = view.epochs_asked - view.epochs_unique
    saved = f", {shared:,g} shared ({percent(shared / view.epochs_asked)} saved)" if shared > 0 else ""
    return f"{view.epochs_asked:,g} requested{saved}, {round(view.epochs_trained, 2):,g} trained in this run"


def number(value: float) -> str:
    """Return a metric with at most five significant digits, and a stable width from one report to the next.

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
    """Return a time in whole seconds, so that the text does not change several times a second.

    >>> _clock(3.7), _clock(250.2)
    ('3 s', '4 min 10 s')
    """
    return f"{int(seconds)} s" if seconds < 59.95 else duration(seconds)


# --- the workers ------------------------------------------------------------------------------------------


def _workers(view: RunView, width: int, most: int) -> list[Text]:
    room = max(1, (width - _LABEL) // _WORKER)
    cells = [f"{worker.name} {worker.doing}" for worker in view.workers]
    if len(cells) > room * most:
        keep = room * most - 1
        idle = sum(worker.doing == "idle" for worker in view.workers[keep:])
        cells = [*cells[:keep], f"and {len(cells) - keep:,} more" + (f", {idle:,} idle" if idle else "")]
    lines = []
    for first in range(0, len(cells), room):
        row = "".join(set_cell_size(cell, _WORKER - 1) + " " for cell in cells[first : first + room])
        lines.append(_labelled("" if first else "workers", row))
    return lines


# --- the trials -------------------------------------------------------------------------------------------


def _trials(view: RunView, width: int, room: int) -> list[Text]:
    total = len(view.rows) + view.hidden
    shown = view.rows if total <= room - 1 else view.rows[: max(0, room - 2)]
    numbers = max(5, *(len(f"{row.number:,}") for row in view.rows))
    names = max(cell_len(printable(row.study)) for row in view.rows) if len(view.studies) > 1 else 0
    metric = printable(view.metrics[0] if len(view.metrics) == 1 else "goal")
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


def _truncate(line: Text, width: int) -> Text:
    """Truncate a line to the width, so that nothing wraps."""
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return line
