"""A search played against the real engine: no training, losses and failures as the weather has them."""

from __future__ import annotations

import math
from collections import deque
from random import Random
from typing import assert_never, final

import msgspec

from hoptree.core.actions import CancelUnit, DropState, EndTrial, Evaluate, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    Event,
    Metrics,
    StateEvaluated,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
)
from hoptree.core.settings import Settings
from hoptree.search.contract_play import Play
from hoptree.search.protocol import Goal, Search
from hoptree.search.streams import share
from hoptree.search.tuner import Tuner

_MOST = 30_000  # steps of a search that is taken to go on for ever


class Weather(msgspec.Struct, frozen=True):
    """What becomes of units and evaluations; it follows from lineages, not from who is trained when.

    ``failures`` and ``nans`` are shares of units and of evaluations, ``ties`` makes most losses equal, and the
    trial ``doomed`` fails at once. ``meddling`` is how often somebody else stops one of the trials.
    """

    seed: int = 0
    failures: float = 0.0
    nans: float = 0.0
    ties: bool = False
    doomed: int | None = None
    meddling: float = 0.0

    def fails(self, key: str, unit: int) -> bool:
        """Return whether a unit of a lineage cannot be trained."""
        return share(self.seed, "fails", key, unit) < self.failures

    def metrics(self, goal: Goal, key: str, unit: int) -> Metrics:
        """Return what an evaluation finds: a level of the lineage's own that is better after more units."""
        if share(self.seed, "nan", key, unit) < self.nans:
            return {goal.metric: math.nan}
        loss = share(self.seed, "level", key) + 1 / (1 + unit)
        loss = round(loss) / 2 if self.ties else loss
        return {goal.metric: -loss if goal.maximize else loss}


def play(search: Search, goal: Goal, weather: Weather, order: int = 0, workers: int = 3) -> Play:
    """Play a search to its end; ``order`` is the seed of who of the workers is done next."""
    done = Play(search, goal)
    _Board(done, goal, weather, Random(order), workers).run()
    return done


@final
class _Board:
    def __init__(self, played: Play, goal: Goal, weather: Weather, random: Random, workers: int) -> None:
        self._goal = goal
        self._weather = weather
        self._random = random
        self._engine = Engine(Settings(partitions=1, retries=0, ahead=False, seed=0))
        self._tuner = Tuner(played, root="contract")
        self._queues: dict[str, list[RunUnit | Evaluate]] = {f"w{index}": [] for index in range(workers)}
        self._evaluating: set[int] = set()

    def run(self) -> None:
        inbox: deque[Event] = deque(WorkerJoined(name, (0,)) for name in self._queues)
        inbox.extend(self._tuner.start())
        for _ in range(_MOST):
            if not inbox:
                if not self._engine.live:
                    return
                meddle = self._random.random() < self._weather.meddling
                inbox.append(self._meddle() if meddle else self._happen())
            event = inbox.popleft()
            for action in self._engine.step(event, 0.0, more=bool(inbox)):
                match action:
                    case RunUnit() | Evaluate():
                        self._queues[action.worker].append(action)
                    case CancelUnit():
                        inbox.extend(self._cancelled(action))
                    case Report() | EndTrial():
                        inbox.extend(self._tuner.tell(action))
                    case DropState():
                        pass
                    case _:
                        assert_never(action)
        raise AssertionError(f"the search has not ended after {_MOST:,} steps; does it start trials without end?")

    def _meddle(self) -> Event:
        return TrialStopped(self._random.choice(list(self._engine.trials)))

    def _happen(self) -> Event:
        """Let one of the workers be done with what it has."""
        busy = [name for name, queue in self._queues.items() if queue]
        assert busy, "trials are left, but nothing runs"
        name = self._random.choice(busy)
        run = self._queues[name][0]
        unit = run.unit
        if isinstance(run, RunUnit):
            if run.run not in self._evaluating:
                if self._doomed(run) or self._weather.fails(run.key, unit):
                    self._queues[name].pop(0)
                    return UnitFailed(run.run, name, "the weather")
                if run.evaluate:
                    self._evaluating.add(run.run)
                else:
                    self._queues[name].pop(0)
                return UnitFinished(run.run, name)
            unit += 1
        self._queues[name].pop(0)
        return StateEvaluated(run.run, name, self._weather.metrics(self._goal, run.key, unit))

    def _doomed(self, run: RunUnit) -> bool:
        trial = self._engine.trials.get(-1 if self._weather.doomed is None else self._weather.doomed)
        return trial is not None and any(node.id == run.node for node, _ in trial.open.values())

    def _cancelled(self, action: CancelUnit) -> list[Event]:
        """Give a run up, and say so if it is still asked for."""
        queue = self._queues[action.worker]
        run = next((run for run in queue if run.run == action.run), None)
        if run is None or run.run in self._evaluating:
            return []
        queue.remove(run)
        return [UnitCancelled(action.run, action.worker)] if action.run in self._engine.runs else []
