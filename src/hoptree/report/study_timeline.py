"""A study over time, as plain records: what all plots and exports are drawn from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.schedules import Config
from hoptree.report.timeline import ReportError, Timeline


class TimedReport(msgspec.Struct, frozen=True):
    """A report as a trial got it: when, and how many epochs the study had trained by then."""

    epoch: int
    now: float
    trained: float
    metrics: Metrics


class TrialTimeline(msgspec.Struct, frozen=True):
    """One trial over time. ``grants`` are the epochs that it was granted, with the moment of each.

    ``seconds`` is what its units took on workers, whoever they were trained for, up to each of its reports.
    """

    number: int
    config: Config
    state: str
    error: str
    begun: float
    ended: float | None
    reports: tuple[TimedReport, ...]
    grants: tuple[tuple[float, int], ...]
    seconds: tuple[float, ...]
    source: int | None = None

    @property
    def epochs(self) -> int:
        """How many epochs have been reported."""
        return self.reports[-1].epoch if self.reports else 0

    @property
    def last(self) -> TimedReport | None:
        """The last report."""
        return self.reports[-1] if self.reports else None

    def at(self, epoch: int) -> TimedReport | None:
        """Return the report of an epoch."""
        return next((told for told in self.reports if told.epoch == epoch), None)


class TreeNode(msgspec.Struct, frozen=True):
    """A node of the plan, as far as trials go: epochs ``start`` to ``end``, and the trials that pass it.

    ``values`` are those at its start; ``metrics`` those of its last report, at the epoch ``told``.
    """

    node: int
    parent: int | None
    start: float
    end: float
    trials: tuple[int, ...]
    values: Config
    told: float = 0.0
    metrics: Metrics = {}


class StudyProgress(msgspec.Struct, frozen=True):
    """How far a study was: epochs that its trials had got, epochs trained, and the workers' seconds.

    ``spent`` went into units; ``alone`` are those that trials would have taken had each been trained by itself.
    """

    now: float
    got: float
    trained: float
    spent: float
    alone: float


class Hop(msgspec.Struct, frozen=True, gc=False):
    """A state left the worker that had made it, and was trained on by another."""

    lane: int
    source: str
    left: float
    worker: str
    begun: float


class StudyTimeline(msgspec.Struct, frozen=True):
    """All that a journal tells of a study, with its times in seconds since the study began.

    ``created`` is when that was, by the clock (0: not known); time in which nobody drove it does not count.
    """

    name: str
    metric: str
    maximize: bool
    partitions: int
    courses: tuple[TrialTimeline, ...]
    timeline: Timeline
    hops: tuple[Hop, ...] = ()
    moments: tuple[StudyProgress, ...] = ()
    twigs: tuple[TreeNode, ...] = ()
    facts: dict[str, str] = {}
    environments: tuple[dict[str, str], ...] = ()
    created: float = 0.0

    def value(self, told: TimedReport | None, metric: str | None = None) -> float:
        """Return a metric of a report, by default the one that decides; NaN where there is none."""
        return math.nan if told is None else told.metrics.get(metric or self.metric, math.nan)

    def loss(self, value: float) -> float:
        """Return how bad a value of the deciding metric is: lower is better, infinite for no finite number."""
        return math.inf if not math.isfinite(value) else -value if self.maximize else value

    @property
    def best(self) -> TrialTimeline | None:
        """The best by its last report: complete, else stopped or running; never one whose report is not finite."""
        told = [course for course in self.courses if course.reports and course.state != "failed"]
        finite = [course for course in told if math.isfinite(self.value(course.last))]
        return min(finite, key=self._rank, default=None)

    def _rank(self, course: TrialTimeline) -> tuple[int, float, int]:
        loss = self.loss(self.value(course.last))
        return standing(course.state, loss), loss, course.number

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics, the one that decides first."""
        names = (name for course in self.courses for told in course.reports[-1:] for name in told.metrics)
        return list(dict.fromkeys([self.metric, *names]))

    @property
    def searched(self) -> list[str]:
        """The hyper-parameters in which trials differ, in the order in which configs name them."""
        seen: dict[str, set[str]] = {}
        for course in self.courses:
            for name, value in course.config.items():
                seen.setdefault(name, set()).add(repr(value))
        everywhere = Counter(name for course in self.courses for name in course.config)
        return [name for name in seen if len(seen[name]) > 1 or everywhere[name] < len(self.courses)]

    @property
    def common_epoch(self) -> int:
        """The largest epoch that at least half of the trials with reports have reported."""
        told = [course for course in self.courses if course.reports]
        reached = Counter(each.epoch for course in told for each in course.reports)
        return max((epoch for epoch, count in reached.items() if 2 * count >= len(told)), default=0)

    def with_reports(self, what: str) -> list[TrialTimeline]:
        """Return the trials that have reported something, or say that there is nothing to draw yet."""
        told = [course for course in self.courses if course.reports]
        if not told:
            failed = bool(self.courses) and all(course.state == "failed" for course in self.courses)
            why = "all of them failed, and `hoptree trials` says of what" if failed else "run the study first"
            raise ReportError(
                f"{what}: no trial of {self.name!r} has reported anything yet; expected at least one report: {why}"
            )
        return told

    def check_metric(self, metric: str | None) -> str:
        """Return a metric that trials report, by default the one that decides."""
        if metric is not None and metric not in self.metrics:
            raise ReportError(f"metric: {metric!r}; expected one of {', '.join(self.metrics)}")
        return metric or self.metric


def standing(state: str, loss: float) -> int:
    """Return before whom a trial comes when the best is looked for, whatever their losses: 0 comes first.

    Complete trials do, then others; but one that diverged is never better than one that did not.

    >>> standing("complete", 0.5), standing("stopped", 0.1), standing("complete", math.inf)
    (0, 1, 2)
    """
    return 2 * (not math.isfinite(loss)) + (state != "complete")


def described(config: Config, names: Sequence[str]) -> str:
    """Return a config in a few words, with the given names only.

    >>> described({"lr": 0.1, "width": 8, "batch": 64}, ["lr", "width"])
    'lr=0.1 width=8'
    """
    return " ".join(f"{name}={short(config[name])}" for name in names if name in config)


def short(value: object) -> str:
    """Return a value as briefly as it can be told.

    >>> short(0.00012341), short(3), short(True)
    ('0.0001234', '3', 'True')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)
