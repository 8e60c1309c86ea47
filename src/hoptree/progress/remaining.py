"""Estimates the remaining time of a run: least, expected and most seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, final

from hoptree.core.lineage import Values
from hoptree.core.plan import ActiveLineage, Run
from hoptree.core.workers import Worker
from hoptree.estimate import WIDE, Estimator
from hoptree.progress.rate_limit import RateLimit
from hoptree.progress.remaining_budget import BudgetTracker
from hoptree.progress.run_stats import RunStats

_SHARE = 0.01  # share of the driver's time that may be spent on this
_DOUBT = 0.09  # spread of the log of the remaining time even if unit times are known: waiting, other programs
_STEPS = 0.3  # … of work that is not requested yet: workers wait while a search decides step by step


class TimeLeft(NamedTuple):
    """Seconds until nothing is left to train; a 90 % interval from least to most."""

    least: float
    expected: float
    most: float


@final
class TimeLeftEstimator:
    """Estimates the remaining time from measured unit times and from the requested work.

    It is the time of all open units and evaluations over all workers; or of those that only some workers can train,
    or of the lineage with the longest remaining path, if that takes longer. Trials that searches may still request
    are expected to take as long as trials so far, and the overhead to stay in proportion. If reading the whole plan
    takes long it is done less often, and elapsed time is subtracted meanwhile.
    """

    def __init__(
        self,
        stats: RunStats,
        estimator: Estimator,
        budget: BudgetTracker | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._stats = stats
        self._estimator = estimator
        self._budget = budget or BudgetTracker()
        self._left: TimeLeft | None = None
        self._estimated_at = 0.0
        self._limit = RateLimit(_SHARE, stats.clock, cpu)

    def remaining(self) -> TimeLeft | None:
        """Return the remaining time; None while nothing was measured, or there are no workers."""
        now = self._stats.clock()
        if self._limit.is_due:
            with self._limit:
                self._left, self._estimated_at = self._estimate(now), now
        if self._left is None:
            return None
        return TimeLeft(*(max(0.0, seconds - (now - self._estimated_at)) for seconds in self._left))

    def _estimate(self, now: float) -> TimeLeft | None:
        engine, estimator = self._stats.engine, self._estimator
        workers = [worker for worker in engine.workers.by_name.values() if not worker.draining]
        if not workers or not estimator.units.count:
            return None
        open_nodes = [node for node in engine.plan.nodes if node.todo or node.requests]
        shares: dict[Values, float] = {}
        units, evaluations = 0.0, 0.0
        for node in open_nodes:
            seconds = node.todo * estimator.unit(node.values)
            units += seconds
            evaluations += len(node.requests) * estimator.evaluation(node.values)
            shares[node.values] = shares.get(node.values, 0.0) + seconds
        done = self._done(now, (worker.queue[0] for worker in workers if worker.queue))
        overhead = self._stats.overhead
        rate = overhead / sum(1 / estimator.units.factor(worker.name) for worker in workers)
        expected = max(0.0, units + evaluations - sum(done.values())) * rate
        if units > 0 and engine.open_work.backlog > 0:
            expected = max(
                expected, self._busiest(workers) * overhead * (units + evaluations) / engine.open_work.backlog
            )
            longest = (self._path_left(lineage, done) for node in open_nodes for lineage in node.active)
            expected = max(expected, max(longest, default=0.0) * overhead * (units + evaluations) / units)
        return self._ranged(expected, shares, sum(node.todo for node in open_nodes), rate)

    def _path_left(self, lineage: ActiveLineage, done: dict[int, float]) -> float:
        """Return the time of a lineage's remaining units: the engine's costs may be old, but are in proportion."""
        node = lineage.node
        if node.cost <= 0:
            return 0.0
        seconds = (lineage.peak - lineage.unit * node.cost) * self._estimator.unit(node.values) / node.cost
        return seconds - sum(done.get(run.number, 0.0) for run in lineage.runs[:1])

    def _busiest(self, workers: Sequence[Worker]) -> float:
        """Return the longest time, by the engine's costs, of the partitions that the same few workers hold."""
        demand = self._stats.engine.open_work
        left: dict[tuple[str, ...], float] = {}
        for partition in range(len(demand.done)):
            holders = tuple(worker.name for worker in workers if partition in worker.held)
            if 0 < len(holders) < len(workers):
                left[holders] = left.get(holders, 0.0) + demand.left(partition) / len(holders)
        return max(left.values(), default=0.0)

    def _done(self, now: float, runs: Iterable[Run]) -> dict[int, float]:
        """Return the finished time of each run: the elapsed time, but at most the expected time."""
        done: dict[int, float] = {}
        for run in runs:
            whole = 0.0 if run.evaluating else self._estimator.unit(run.node.values)
            whole += self._estimator.evaluation(run.node.values) if run.evaluating or run.evaluate else 0.0
            done[run.number] = min(whole, max(0.0, now - self._stats.since.get(run.worker, now)))
        return done

    def _ranged(self, asked: float, shares: dict[Values, float], units: int, rate: float) -> TimeLeft:
        remaining = self._budget.remaining(self._stats)
        whole = self._whole() * rate if remaining.most else 0.0
        least, expected, most = (asked + share * whole for share in remaining)
        samples = self._estimator.units
        steps = _STEPS * (1 - asked / expected) if expected else 0.0
        noise = samples.noise / math.sqrt(max(1, units))
        wide = math.exp(WIDE * math.hypot(samples.doubt(shares), noise, steps, _DOUBT))
        return TimeLeft(least / wide, expected, most * wide)

    def _whole(self) -> float:
        """Return the seconds that all requested work, finished or not, takes on a worker of speed 1."""
        estimator = self._estimator
        seconds = 0.0
        for node in self._stats.engine.plan.nodes:
            if units := node.todo + sum(node.trained.values()):
                seconds += units * estimator.unit(node.values)
            if evaluations := len(node.requests) + len(node.reports):
                seconds += evaluations * estimator.evaluation(node.values)
        return seconds
