"""How long it will still take: the least, the expected and the most, in seconds."""

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

_SHARE = 0.01  # of the time may be spent on this
_DOUBT = 0.09  # spread of the log of the time that is left however well units are known: waiting, other programs
_STEPS = 0.3  # … of what is not yet asked for: workers wait where a search decides step by step


class TimeLeft(NamedTuple):
    """Seconds until nothing is left to train; nine of ten times it is from least to most."""

    least: float
    expected: float
    most: float


@final
class TimeLeftEstimator:
    """Tells the time left from what the estimator has learned, and from what has been asked for.

    It is that of all open units and evaluations over all workers; or of those that only some workers can train, or
    of the lineage with the longest way to go, if that takes longer. What searches may still ask for is expected to
    take what trials took so far, and what comes on top of training to stay in proportion. Where looking at all of
    the plan takes long it is done less often, and time passes meanwhile.
    """

    def __init__(
        self,
        tally: RunStats,
        estimator: Estimator,
        asking: BudgetTracker | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._tally = tally
        self._estimator = estimator
        self._asking = asking or BudgetTracker()
        self._left: TimeLeft | None = None
        self._looked = 0.0
        self._pace = RateLimit(_SHARE, tally.clock, cpu)

    def remaining(self) -> TimeLeft | None:
        """Return the time that is left; None while nothing was measured, or nobody is there to train."""
        now = self._tally.clock()
        if self._pace.is_due:
            with self._pace:
                self._left, self._looked = self._look(now), now
        if self._left is None:
            return None
        return TimeLeft(*(max(0.0, seconds - (now - self._looked)) for seconds in self._left))

    def _look(self, now: float) -> TimeLeft | None:
        engine, estimator = self._tally.engine, self._estimator
        staff = [worker for worker in engine.workers.by_name.values() if not worker.draining]
        if not staff or not estimator.units.count:
            return None
        open_nodes = [node for node in engine.plan.nodes if node.todo or node.requests]
        shares: dict[Values, float] = {}
        units, evaluations = 0.0, 0.0
        for node in open_nodes:
            seconds = node.todo * estimator.unit(node.values)
            units += seconds
            evaluations += len(node.requests) * estimator.evaluation(node.values)
            shares[node.values] = shares.get(node.values, 0.0) + seconds
        done = self._done(now, (worker.queue[0] for worker in staff if worker.queue))
        toll = self._tally.toll
        pace = toll / sum(1 / estimator.units.factor(worker.name) for worker in staff)
        expected = max(0.0, units + evaluations - sum(done.values())) * pace
        if units > 0 and engine.demand.backlog > 0:
            expected = max(expected, self._busiest(staff) * toll * (units + evaluations) / engine.demand.backlog)
            longest = (self._way(cursor, done) for node in open_nodes for cursor in node.active)
            expected = max(expected, max(longest, default=0.0) * toll * (units + evaluations) / units)
        return self._ranged(expected, shares, sum(node.todo for node in open_nodes), pace)

    def _way(self, cursor: ActiveLineage, done: dict[int, float]) -> float:
        """Return what is left of a lineage's units: the engine's costs may be old, but they are in proportion."""
        node = cursor.node
        if node.cost <= 0:
            return 0.0
        seconds = (cursor.peak - cursor.unit * node.cost) * self._estimator.unit(node.values) / node.cost
        return seconds - sum(done.get(run.number, 0.0) for run in cursor.runs[:1])

    def _busiest(self, staff: Sequence[Worker]) -> float:
        """Return the longest time, by the engine's costs, of what only some workers can train: by who holds it."""
        demand = self._tally.engine.demand
        left: dict[tuple[str, ...], float] = {}
        for partition in range(len(demand.done)):
            holders = tuple(worker.name for worker in staff if partition in worker.held)
            if 0 < len(holders) < len(staff):
                left[holders] = left.get(holders, 0.0) + demand.left(partition) / len(holders)
        return max(left.values(), default=0.0)

    def _done(self, now: float, runs: Iterable[Run]) -> dict[int, float]:
        """Return by run what is done of it: the time that it has taken, but no more than it is expected to take."""
        done: dict[int, float] = {}
        for run in runs:
            whole = 0.0 if run.evaluating else self._estimator.unit(run.node.values)
            whole += self._estimator.evaluation(run.node.values) if run.evaluating or run.evaluate else 0.0
            done[run.number] = min(whole, max(0.0, now - self._tally.since.get(run.worker, now)))
        return done

    def _ranged(self, asked: float, shares: dict[Values, float], units: int, pace: float) -> TimeLeft:
        unasked = self._asking.unasked(self._tally)
        whole = self._whole() * pace if unasked.most else 0.0
        least, expected, most = (asked + share * whole for share in unasked)
        samples = self._estimator.units
        steps = _STEPS * (1 - asked / expected) if expected else 0.0
        noise = samples.noise / math.sqrt(max(1, units))
        wide = math.exp(WIDE * math.hypot(samples.doubt(shares), noise, steps, _DOUBT))
        return TimeLeft(least / wide, expected, most * wide)

    def _whole(self) -> float:
        """Return the seconds of a worker of speed 1 that all that has been asked for takes, with what is done."""
        estimator = self._estimator
        seconds = 0.0
        for node in self._tally.engine.plan.nodes:
            if units := node.todo + sum(node.trained.values()):
                seconds += units * estimator.unit(node.values)
            if evaluations := len(node.requests) + len(node.reports):
                seconds += evaluations * estimator.evaluation(node.values)
        return seconds
