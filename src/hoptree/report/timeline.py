"""The timeline of all workers: the input of Gantt charts and traces."""

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hoptree.core.errors import HoptreeError

KINDS = ("unit", "evaluation", "hop", "failed", "down")
BUSY = ("unit", "evaluation")


class ReportError(HoptreeError, ValueError):
    """A plot or table cannot be drawn: a span ends before it starts, or a file has an unknown type."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """An activity of one worker from `start` to `end`, in seconds since the study started.

    `kind` is one of `KINDS`; down is a worker's absence.
    `lane` is a small integer that identifies a lineage (it selects the colour), `label` its name.
    """

    worker: str
    start: float
    end: float
    kind: str
    lane: int
    label: str
    partition: int
    epoch: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end < math.inf:
            raise ReportError(
                f"span of {self.worker}: runs from {self.start} to {self.end}; "
                "expected 0 <= start <= end < infinity, in seconds since the study started"
            )
        if self.kind not in KINDS:
            raise ReportError(f"span of {self.worker}: kind is {self.kind!r}; expected one of {', '.join(KINDS)}")
        if self.lane < 0:
            raise ReportError(f"span of {self.worker}: lane is {self.lane}; number the lanes from 0")


class Timeline(msgspec.Struct, frozen=True):
    """All spans of a study, its length, and its workers in display order.

    Spans may be in any order, and spans of one worker may overlap (a hop during a unit, a bundle of units).
    Anything after the makespan is neither counted nor drawn.

    >>> timeline = Timeline.of([Span("w0", 0, 3, "unit", 0, "trial 0", 0, 0),
    ...                         Span("w1", 2, 4, "unit", 0, "trial 0", 1, 0)])
    >>> timeline.makespan, timeline.utilisation()
    (4, {'w0': 0.75, 'w1': 0.5})
    """

    spans: tuple[Span, ...]
    makespan: float
    workers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.makespan < math.inf:
            raise ReportError(f"makespan: {self.makespan}; expected a finite number of seconds, at least 0")
        known = set(self.workers)
        if len(known) < len(self.workers):
            twice = next(name for i, name in enumerate(self.workers) if name in self.workers[:i])
            raise ReportError(f"workers: {twice!r} is listed twice; expected one entry per worker")
        for span in self.spans:
            if span.worker not in known:
                raise ReportError(
                    f"workers: {span.worker!r} has a span but is not listed; "
                    "list every worker, or let Timeline.of(spans) collect them"
                )

    @classmethod
    def of(cls, spans: Iterable[Span], workers: Sequence[str] = ()) -> "Timeline":
        """Create the timeline that ends with its last span; add workers that are not given as they appear."""
        spans = tuple(spans)
        names = dict.fromkeys([*workers, *(span.worker for span in spans)])
        return cls(spans, max((span.end for span in spans), default=0.0), tuple(names))

    def busy_intervals(self) -> Iterator[tuple[str, float, float]]:
        """Yield the intervals without a gap in which a worker trained or evaluated, each with its worker.

        Overlapping and adjacent spans are one interval, so a bundle counts once.
        """
        intervals: dict[str, tuple[float, float]] = {}
        for span in sorted((s for s in self.spans if s.kind in BUSY), key=lambda s: s.start):
            start, end = span.start, min(span.end, self.makespan)
            if end <= start:
                continue
            begun, ended = intervals.get(span.worker, (start, start))
            if start > ended:
                yield span.worker, begun, ended
                begun = start
            intervals[span.worker] = (begun, max(ended, end))
        for worker, (begun, ended) in intervals.items():
            yield worker, begun, ended

    def busy(self) -> dict[str, float]:
        """Count the seconds in which each worker trained or evaluated."""
        seconds = dict.fromkeys(self.workers, 0.0)
        for worker, start, end in self.busy_intervals():
            seconds[worker] += end - start
        return seconds

    def total_busy(self) -> float:
        """Count the seconds in which workers trained or evaluated, summed over the workers."""
        return math.fsum(self.busy().values())

    def utilisation(self) -> dict[str, float]:
        """Return the share of the makespan in which each worker was busy, from 0 to 1."""
        if not self.makespan:
            return dict.fromkeys(self.workers, 0.0)
        return {worker: min(1.0, seconds / self.makespan) for worker, seconds in self.busy().items()}

    def lanes(self) -> dict[int, str]:
        """Return every lane in order, with its first label; absence of a worker has no lane."""
        labels: dict[int, str] = {}
        for span in self.spans:
            if span.kind != "down":
                labels.setdefault(span.lane, span.label)
        return dict(sorted(labels.items()))


def short_name(taken: Iterable[str]) -> str:
    """Return the short name of a worker that joins: the first name that is not taken.

    >>> short_name(["w0", "w2"])
    'w1'
    """
    there = set(taken)
    return next(name for i in range(len(there) + 1) if (name := f"w{i}") not in there)


def mean(values: Iterable[float]) -> float:
    """Return the mean, and 0 without values, because no worker was busy then."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else 0.0
