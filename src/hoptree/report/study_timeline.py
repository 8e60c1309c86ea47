"""The timeline of a study as plain records: the input of all plots and exports."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.schedules import Config
from hoptree.report.nodes_over_time import NodesOverTime
from hoptree.report.timeline import ReportError, Timeline


class TimedReport(msgspec.Struct, frozen=True):
    """A report of a trial, with its time and the epochs that the study had trained by then."""

    epoch: int
    now: float
    trained: float
    metrics: Metrics


class TrialTimeline(msgspec.Struct, frozen=True):
    """The timeline of one trial. ``grants`` are pairs of a time and the epochs granted then.

    ``seconds`` is the training time of its units up to each of its reports, including shared units.
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
        """The last reported epoch."""
        return self.reports[-1].epoch if self.reports else 0

    @property
    def last(self) -> TimedReport | None:
        """The last report."""
        return self.reports[-1] if self.reports else None

    def at(self, epoch: int) -> TimedReport | None:
        """Return the report of an epoch."""
        return next((reported for reported in self.reports if reported.epoch == epoch), None)


class TreeNode(msgspec.Struct, frozen=True):
    """A node of the plan: its epochs ``start`` to ``end``, and the trials that pass it.

    ``values`` are those at its start; ``metrics`` those of its last report, at the epoch ``reported``.
    """

    node: int
    parent: int | None
    start: float
    end: float
    trials: tuple[int, ...]
    values: Config
    reported: float = 0.0
    metrics: Metrics = {}


class StudyProgress(msgspec.Struct, frozen=True):
    """The progress of a study at a time: epochs that trials received, trained epochs, and the workers' seconds.

    ``spent`` is the time of all units; ``alone`` the time if every trial had been trained by itself.
    """

    now: float
    got: float
    trained: float
    spent: float
    alone: float


class Hop(msgspec.Struct, frozen=True, gc=False):
    """A state moved from the worker that trained it to another that continues it."""

    lane: int
    source: str
    left: float
    worker: str
    begun: float


class StudyTimeline(msgspec.Struct, frozen=True):
    """Everything in a study's journal, with times in seconds since the study started.

    ``created`` is the start as a Unix time (0: unknown); time without a driver does not count.
    """

    name: str
    metric: str
    maximize: bool
    partitions: int
    trials: tuple[TrialTimeline, ...]
    timeline: Timeline
    hops: tuple[Hop, ...] = ()
    progress: tuple[StudyProgress, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    facts: dict[str, str] = {}
    environments: tuple[dict[str, str], ...] = ()
    created: float = 0.0
    nodes: NodesOverTime | None = None  # None: no node was paid for

    def value(self, report: TimedReport | None, metric: str | None = None) -> float:
        """Return a metric of a report, by default the study's goal; NaN if it is missing."""
        return math.nan if report is None else report.metrics.get(metric or self.metric, math.nan)

    def loss(self, value: float) -> float:
        """Return the loss of a value of the goal's metric: lower is better, infinite if it is not finite."""
        return math.inf if not math.isfinite(value) else -value if self.maximize else value

    @property
    def best(self) -> TrialTimeline | None:
        """The best trial by its last finite report: a complete one if possible, else stopped or running."""
        reported = [
            trial_timeline
            for trial_timeline in self.trials
            if trial_timeline.reports and trial_timeline.state != "failed"
        ]
        finite = [trial_timeline for trial_timeline in reported if math.isfinite(self.value(trial_timeline.last))]
        return min(finite, key=self._rank, default=None)

    def _rank(self, trial_timeline: TrialTimeline) -> tuple[int, float, int]:
        loss = self.loss(self.value(trial_timeline.last))
        return standing(trial_timeline.state, loss), loss, trial_timeline.number

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics, the goal's first."""
        names = (
            name
            for trial_timeline in self.trials
            for reported in trial_timeline.reports[-1:]
            for name in reported.metrics
        )
        return list(dict.fromkeys([self.metric, *names]))

    @property
    def searched(self) -> list[str]:
        """The hyper-parameters in which trials differ, in the order in which configs name them."""
        seen: dict[str, set[str]] = {}
        for trial_timeline in self.trials:
            for name, value in trial_timeline.config.items():
                seen.setdefault(name, set()).add(repr(value))
        everywhere = Counter(name for trial_timeline in self.trials for name in trial_timeline.config)
        return [name for name in seen if len(seen[name]) > 1 or everywhere[name] < len(self.trials)]

    @property
    def common_epoch(self) -> int:
        """The largest epoch that at least half of the trials with reports have reported."""
        reported = [trial_timeline for trial_timeline in self.trials if trial_timeline.reports]
        reached = Counter(each.epoch for trial_timeline in reported for each in trial_timeline.reports)
        return max((epoch for epoch, count in reached.items() if 2 * count >= len(reported)), default=0)

    def with_reports(self, what: str) -> list[TrialTimeline]:
        """Return the trials with reports; raise an error if there are none."""
        reported = [trial_timeline for trial_timeline in self.trials if trial_timeline.reports]
        if not reported:
            failed = bool(self.trials) and all(trial_timeline.state == "failed" for trial_timeline in self.trials)
            why = "all trials failed; `hoptree trials` shows the errors" if failed else "run the study first"
            raise ReportError(f"{what}: no trial of {self.name!r} has reported anything yet; {why}")
        return reported

    def check_metric(self, metric: str | None) -> str:
        """Return a metric that trials report, by default the goal's; raise an error if it is unknown."""
        if metric is not None and metric not in self.metrics:
            raise ReportError(f"metric: {metric!r}; expected one of {', '.join(self.metrics)}")
        return metric or self.metric


def standing(state: str, loss: float) -> int:
    """Return a rank that takes precedence over the loss when the best trial is chosen: 0 comes first.

    Complete trials come before others; but a trial that diverged is never better than one that did not.

    >>> standing("complete", 0.5), standing("stopped", 0.1), standing("complete", math.inf)
    (0, 1, 2)
    """
    return 2 * (not math.isfinite(loss)) + (state != "complete")


def described(config: Config, names: Sequence[str]) -> str:
    """Return a config as short text, with the given names only.

    >>> described({"lr": 0.1, "width": 8, "batch": 64}, ["lr", "width"])
    'lr=0.1 width=8'
    """
    return " ".join(f"{name}={short(config[name])}" for name in names if name in config)


def short(value: object) -> str:
    """Return a value as short text.

    >>> short(0.00012341), short(3), short(True)
    ('0.0001234', '3', 'True')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)
