"""A timeline as Chrome trace events, which ui.perfetto.dev and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import gzip
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hoptree.report.timeline import BUSY, ReportError, Span, Timeline

Event = dict[str, Any]

_PROCESS = 1
_SUFFIXES = (".json", ".json.gz")


def perfetto(timeline: Timeline) -> dict[str, Any]:
    """Return a trace of one process with a thread per worker, a counter of busy workers, and an arrow per hop.

    Overlapping spans of one worker are put on additional threads, since a thread has one slice at a time. Times are
    whole microseconds; events are sorted by time, after those that name the threads.
    """
    ordered = sorted(timeline.spans, key=lambda span: (_micros(span.start), _micros(span.end)))
    depths = _depths(timeline, ordered)
    numbers = _numbers(timeline, ordered, depths)
    threads = [numbers[span.worker, depth] for span, depth in zip(ordered, depths, strict=True)]
    events = [*map(_slice, ordered, threads), *_counter(timeline), *_arrows(ordered, threads)]
    # The sort is stable: at the same time slices come first, so that arrows find them.
    events.sort(key=lambda event: int(event["ts"]))
    return {"displayTimeUnit": "ms", "traceEvents": [*_metadata(numbers), *events]}


def save_trace(timeline: Timeline, path: str | Path) -> None:
    """Write the trace as `.json`, or as `.json.gz`, which is many times smaller and can be opened too."""
    path = Path(path)
    if not path.name.endswith(_SUFFIXES):
        raise ReportError(
            f"{path}: suffix is {path.suffix!r}; expected {' or '.join(_SUFFIXES)}, "
            f"for example {path.stem or 'trace'}.json"
        )
    data = msgspec.json.encode(perfetto(timeline))
    path.write_bytes(gzip.compress(data, compresslevel=6, mtime=0) if path.suffix == ".gz" else data)


def _micros(seconds: float) -> int:
    """Round to microseconds; this keeps the order, so spans that do not overlap stay apart."""
    return round(seconds * 1e6)


def _depths(timeline: Timeline, ordered: list[Span]) -> list[int]:
    """Return for each span the first thread of its worker that is free when it starts."""
    ends: dict[str, list[int]] = {worker: [] for worker in timeline.workers}
    depths = []
    for span in ordered:
        start, end = _micros(span.start), _micros(span.end)
        free = ends[span.worker]
        depth = next((i for i, busy_until in enumerate(free) if busy_until <= start), len(free))
        if depth == len(free):
            free.append(end)
        else:
            free[depth] = end
        depths.append(depth)
    return depths


def _numbers(timeline: Timeline, ordered: list[Span], depths: list[int]) -> dict[tuple[str, int], int]:
    """Return the numbers of the threads, from 1 in display order."""
    deepest = dict.fromkeys(timeline.workers, 0)
    for span, depth in zip(ordered, depths, strict=True):
        deepest[span.worker] = max(deepest[span.worker], depth)
    threads = ((worker, depth) for worker in timeline.workers for depth in range(deepest[worker] + 1))
    return {thread: number for number, thread in enumerate(threads, start=1)}


def _metadata(numbers: dict[tuple[str, int], int]) -> Iterator[Event]:
    yield {"ph": "M", "pid": _PROCESS, "tid": 0, "name": "process_name", "args": {"name": "hoptree"}}
    for (worker, depth), number in numbers.items():
        place = {"ph": "M", "pid": _PROCESS, "tid": number}
        name = f"{worker} ({depth + 1})" if depth else worker
        yield {**place, "name": "thread_name", "args": {"name": name}}
        yield {**place, "name": "thread_sort_index", "args": {"sort_index": number}}


def _slice(span: Span, thread: int) -> Event:
    start = _micros(span.start)
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": thread,
        "ts": start,
        "dur": _micros(span.end) - start,
        "name": span.label if span.kind == "unit" else f"{span.kind} {span.label}".strip(),
        "cat": span.kind,
        "args": {"trial": span.label, "lane": span.lane, "epoch": span.epoch, "partition": span.partition},
    }


def _counter(timeline: Timeline) -> Iterator[Event]:
    """Yield the number of workers that train or evaluate, whenever it changes."""
    changes: defaultdict[int, int] = defaultdict(int, {0: 0})
    for _, start, end in timeline.busy_intervals():
        changes[_micros(start)] += 1
        changes[_micros(end)] -= 1
    busy = 0
    for i, (moment, change) in enumerate(sorted(changes.items())):
        busy += change
        if change or i == 0:
            yield {
                "ph": "C",
                "pid": _PROCESS,
                "tid": 0,
                "ts": moment,
                "name": "busy workers",
                "args": {"busy": busy},
            }


def _arrows(ordered: list[Span], threads: list[int]) -> Iterator[Event]:
    """Yield arrows from the end of a lane's span on one worker to its next span on another."""
    previous: dict[int, tuple[Span, int]] = {}
    numbers = itertools.count(1)
    for span, thread in zip(ordered, threads, strict=True):
        if span.kind not in BUSY:
            continue
        before = previous.get(span.lane)
        previous[span.lane] = (span, thread)
        if before is None or before[0].worker == span.worker or before[0].end > span.start:
            continue
        # An arrow belongs to the slice around its time, and a slice does not include its end.
        leaves = max(_micros(before[0].start), _micros(before[0].end) - 1)
        arrow = {"pid": _PROCESS, "name": "hop", "cat": "hop", "id": next(numbers)}
        yield {**arrow, "ph": "s", "tid": before[1], "ts": leaves}
        yield {**arrow, "ph": "f", "bp": "e", "tid": thread, "ts": _micros(span.start)}
