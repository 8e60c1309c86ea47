"""Runs a search with the real engine but without training: losses and failures follow from given conditions."""

from __future__ import annotations

import math
from collections import deque
from random import Random
from typing import assert_never, final

import msgspec

from hoptree.core.actions import (
    AdoptState,
    CancelUnit,
    CopyPartitions,
    DropState,
    EndTrial,
    Evaluate,
    Report,
    RunUnit,
    SaveState,
)
from hoptree.core.engine import Engine
from hoptree.core.events import (
    Event,
    Metrics,
    StateEvaluated,
    TrialRetried,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
)
from hoptree.core.settings import Settings
from hoptree.search.protocol import Goal, Search
from hoptree.search.streams import share
from hoptree.search.tuner import Tuner
from hoptree.testing.search_log import SearchLog

_MOST = 30_000  # steps after which a search is considered endless


class Conditions(msgspec.Struct, frozen=True):
    """How units and evaluations end: a function of the lineage, not of the order of training.

    ``failures`` and ``nans`` are shares of units and of evaluations, ``ties`` makes most losses equal, and the
    trial ``failing`` fails at once. ``stops`` is how often a user stops one of the trials, and ``retries`` how
    often a user retries one that failed, with success; the others are retried at the end.
    """

    seed: int = 0
    failures: float = 0.0
    nans: float = 0.0
    ties: bool = False
    failing: int | None = None
    stops: float = 0.0
    retries: float = 0.0

    def fails(self, key: str, unit: int) -> bool:
        """Return whether a unit of a lineage fails."""
        return share(self.seed, "fails", key, unit) < self.failures

    def metrics(self, goal: Goal, key: str, unit: int) -> Metrics:
        """Return an evaluation's metrics: the loss starts at a level of the lineage and falls with each unit."""
        if share(self.seed, "nan", key, unit) < self.nans:
            return {goal.metric: math.nan}
        loss = share(self.seed, "level", key) + 1 / (1 + unit)
        loss = round(loss) / 2 if self.ties else loss
        return {goal.metric: -loss if goal.maximize else loss}


def run_search(search: Search, goal: Goal, conditions: Conditions, order: int = 0, workers: int = 3) -> SearchLog:
    """Run a search to its end; ``order`` seeds which worker finishes next."""
    log = SearchLog(search, goal)
    _SearchRun(log, goal, conditions, Random(order), workers).run()
    return log


@final
class _SearchRun:
    def __init__(self, log: SearchLog, goal: Goal, conditions: Conditions, random: Random, workers: int) -> None:
        self._goal = goal
        self._conditions = conditions
        self._random = random
        self._engine = Engine(Settings(partitions=1, retries=0, ahead=False, seed=0))
        self._tuner = Tuner(log, root="contract")
        self._queues: dict[str, list[RunUnit | Evaluate]] = {f"w{index}": [] for index in range(workers)}
        self._evaluating: set[int] = set()
        self._broken: set[tuple[str, int]] = set()  # units that failed
        self._mended: set[tuple[str, int]] = set()  # … and succeed when they are retried

    def run(self) -> None:
        inbox: deque[Event] = deque(WorkerJoined(name, (0,)) for name in self._queues)
        inbox.extend(self._tuner.start())
        for _ in range(_MOST):
            if not inbox:
                if not self._engine.live:
                    inbox.extend(self._retried(1.0))
                    if not inbox:
                        return
                    continue
                inbox.extend(self._retried(self._conditions.retries))
                stop = self._random.random() < self._conditions.stops
                inbox.append(self._stop_one() if stop else self._finish_one())
            event = inbox.popleft()
            for action in self._engine.step(event, 0.0, more=bool(inbox)):
                match action:
                    case RunUnit() | Evaluate():
                        self._queues[action.worker].append(action)
                    case CancelUnit():
                        inbox.extend(self._cancelled(action))
                    case Report() | EndTrial():
                        inbox.extend(self._tuner.tell(action))
                    case SaveState() | AdoptState() | DropState() | CopyPartitions():
                        pass
                    case _:
                        assert_never(action)
        raise AssertionError(f"the search has not ended after {_MOST:,} steps; does it start trials without end?")

    def _retried(self, share: float) -> list[Event]:
        """Retry some of the failed trials; none if the conditions have no retries."""
        failed = [number for number, trial in self._engine.trials.items() if trial.ending == "failed"]
        if not self._conditions.retries or not failed or self._random.random() >= share:
            return []
        self._mended |= self._broken
        return [TrialRetried(number) for number in (failed if share == 1.0 else failed[:1])]

    def _stop_one(self) -> Event:
        return TrialStopped(self._random.choice(list(self._engine.trials)))

    def _finish_one(self) -> Event:
        """End the run of one busy worker."""
        busy = [name for name, queue in self._queues.items() if queue]
        assert busy, "trials are left, but no worker is busy"
        name = self._random.choice(busy)
        run = self._queues[name][0]
        unit = run.unit
        if isinstance(run, RunUnit):
            if run.run not in self._evaluating:
                failing = self._is_failing(run) or self._conditions.fails(run.key, unit)
                if failing and (run.key, unit) not in self._mended:
                    self._broken.add((run.key, unit))
                    self._queues[name].pop(0)
                    return UnitFailed(run.run, name, "as the conditions say")
                if run.evaluate:
                    self._evaluating.add(run.run)
                else:
                    self._queues[name].pop(0)
                return UnitFinished(run.run, name)
            unit += 1
        self._queues[name].pop(0)
        return StateEvaluated(run.run, name, self._conditions.metrics(self._goal, run.key, unit))

    def _is_failing(self, run: RunUnit) -> bool:
        trial = self._engine.trials.get(-1 if self._conditions.failing is None else self._conditions.failing)
        return trial is not None and any(node.id == run.node for node, _ in trial.open.values())

    def _cancelled(self, action: CancelUnit) -> list[Event]:
        """Cancel a run, and report it if the engine still waits for it."""
        queue = self._queues[action.worker]
        run = next((run for run in queue if run.run == action.run), None)
        if run is None or run.run in self._evaluating:
            return []
        queue.remove(run)
        return [UnitCancelled(action.run, action.worker)] if action.run in self._engine.runs else []
