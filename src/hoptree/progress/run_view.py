"""The scene: all that is shown of a run at one moment, as plain values; terminals and notebooks draw it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import final

import msgspec

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.plan import Trial, Work
from hoptree.core.schedules import Schedule
from hoptree.estimate import Estimator
from hoptree.progress.rate_limit import RateLimit
from hoptree.progress.remaining import TimeLeft, TimeLeftEstimator
from hoptree.progress.remaining_budget import BudgetTracker
from hoptree.progress.run_stats import Failure, RunStats, TrialStats

_ROWS = 400  # trials of which more is known than that they are there
_SHARE = 0.02  # of the time may be spent on counting the work of all trials
_ALMOST = 0.99
STARTS = "starts"  # what a worker does that has not joined yet


class TrialView(msgspec.Struct, frozen=True):
    """A trial that has not ended: how far it is, its curve, and which workers train it now."""

    number: int
    study: str
    epochs: int
    until: int
    values: tuple[float, ...]
    config: str
    by: tuple[str, ...] = ()


class BestTrialView(msgspec.Struct, frozen=True):
    """The best trial of a study so far."""

    number: int
    study: str
    metric: str
    value: float
    config: str


class WorkerView(msgspec.Struct, frozen=True):
    """A worker, and what it does."""

    name: str
    doing: str


@final
class RunView(msgspec.Struct, frozen=True):
    """A run at one moment.

    ``rows`` are trials that have not ended, those that train first; ``hidden`` says how many more there are.
    ``epochs_asked`` are of all trials, ``epochs_unique`` what is left of them when equal ones are trained once.
    ``fraction`` never falls, and is None if nobody can say what searches will ask for. ``open_ended``: what is left
    is that of what has been asked for, and more may come.
    """

    studies: tuple[str, ...]
    metrics: tuple[str, ...]
    elapsed: float
    fraction: float | None
    left: TimeLeft | None
    counts: dict[str, int]
    leaders: tuple[BestTrialView, ...]
    hands: tuple[WorkerView, ...]
    rows: tuple[TrialView, ...]
    hidden: int
    epochs_asked: float
    epochs_unique: float
    epochs_trained: float
    failures: tuple[Failure, ...] = ()
    open_ended: bool = False


@final
class RunViews:
    """Puts scenes together from a tally; the driver's time is not spent on what nobody would see."""

    def __init__(
        self,
        tally: RunStats,
        workers: int,
        estimator: Estimator,
        asking: BudgetTracker | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.tally = tally
        self._workers = workers
        self._asking = asking or BudgetTracker()
        self._remaining = TimeLeftEstimator(tally, estimator, self._asking, cpu)
        self._clock = tally.clock
        self._begun = tally.clock()
        self._work = Work(0, 0)
        self._pace = RateLimit(_SHARE, tally.clock, cpu)
        self._fraction = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the driver began."""
        return self._clock() - self._begun

    def scene(self, over: bool = False) -> RunView:
        """Return what there is to show now, or at the end."""
        tally, engine = self.tally, self.tally.engine
        partitions = engine.settings.partitions
        trained_by = self._training()
        rows = sorted(
            tally.live.values(),
            key=lambda each: (each.trial.number not in trained_by, not each.values, each.study, each.number),
        )
        work = self._counted(over)
        running = sum(bool(each.values) or each.trial.number in trained_by for each in tally.live.values())
        return RunView(
            studies=tuple(tally.goals),
            metrics=tuple(dict.fromkeys(goal.metric for goal in tally.goals.values())),
            elapsed=self.elapsed,
            fraction=self._progress(over),
            left=self._remaining.remaining() if tally.live else None,
            counts={
                **{ending: tally.endings[ending] for ending in ("complete", "stopped", "failed")},
                "running": running,
                "waiting": len(tally.live) - running,
            },
            leaders=tuple(_leader(each, tally) for each in (tally.final() if over else tally.best.values())),
            hands=self._hands(),
            rows=tuple(_row(each, tally, trained_by.get(each.trial.number, ())) for each in rows[:_ROWS]),
            hidden=max(0, len(rows) - _ROWS),
            epochs_asked=work.asked / partitions,
            epochs_unique=work.unique / partitions,
            epochs_trained=tally.units / partitions,
            failures=tuple(tally.failures),
            open_ended=not self._asking.known or self._asking.is_surpassed(tally),
        )

    def _progress(self, over: bool) -> float | None:
        """Return how much of all is done, with what searches are expected to ask for; it never falls.

        Until the run is over it is below 1: at any moment a search may turn out to ask for more than expected.
        """
        tally, demand = self.tally, self.tally.engine.demand
        if over and tally.followed and not tally.live:
            return 1.0
        if not self._asking.known:
            return None
        done = sum(demand.done)
        asked = done + max(0.0, demand.backlog)
        if asked > 0:
            now = done / (asked * (1 + self._asking.unasked(tally).expected))
            self._fraction = max(self._fraction, min(now, _ALMOST))
        return self._fraction

    def _training(self) -> dict[int, list[str]]:
        """Return by trial the workers that train it now: several trials where they share."""
        found: dict[int, list[str]] = {}
        for worker, queue in self.tally.queues.items():
            for trial in self._behind(queue[:1]):
                found.setdefault(trial.number, []).append(self.tally.workers.get(worker, worker))
        return found

    def _behind(self, actions: Iterable[RunUnit | Evaluate]) -> list[Trial]:
        """Return the trials that wait for what a worker does."""
        engine = self.tally.engine
        found: dict[int, Trial] = {}
        for action in actions:
            run = engine.runs.get(action.run)
            if run is None:
                continue
            after = action.unit if isinstance(action, Evaluate) else action.unit + 1
            found.update((trial.number, trial) for trial in run.node.requests.get(after, ()))
            if run.lineage is not None:
                found.update((trial.number, trial) for trial in engine.demand.trials_behind(run.lineage))
        return list(found.values())

    def _hands(self) -> tuple[WorkerView, ...]:
        tally = self.tally
        hands = [WorkerView(called, self._doing(name)) for name, called in tally.workers.items()]
        missing = range(len(hands), self._workers)
        return (*hands, *(WorkerView(f"w{i}", STARTS) for i in missing))

    def _doing(self, worker: str) -> str:
        queue = self.tally.queues.get(worker)
        if not queue:
            return "idle"
        action, trials = queue[0], self._behind(queue[:1])
        numbers = sorted(self.tally.followed[trial.number].number for trial in trials)
        whom = f"trial {numbers[0]}" if numbers else "a trial"
        others = f" +{len(numbers) - 1}" if len(numbers) > 1 else ""
        if isinstance(action, Evaluate):
            return f"{whom}{others}: evaluates"
        partitions = self.tally.engine.settings.partitions
        return f"{whom}{others}: epoch {action.epoch + 1}, {action.unit % partitions + 1} of {partitions}"

    def _counted(self, over: bool) -> Work:
        """Count the work of all trials; with many of them that takes a while, so it is done less often."""
        if over or self._pace.is_due:
            with self._pace:
                engine = self.tally.engine
                self._work = engine.plan.work(engine.trials.values())
        return self._work


def _row(followed: TrialStats, tally: RunStats, by: Iterable[str]) -> TrialView:
    trial = followed.trial
    return TrialView(
        number=followed.number,
        study=followed.study,
        epochs=trial.reached,
        until=trial.until,
        values=tuple(followed.values),
        config=_config(trial, tally),
        by=tuple(by),
    )


def _leader(followed: TrialStats, tally: RunStats) -> BestTrialView:
    config = _config(followed.trial, tally)
    return BestTrialView(followed.number, followed.study, followed.goal.metric, followed.values[-1], config)


def _config(trial: Trial, tally: RunStats) -> str:
    """Return what sets a trial apart from others, or all of its config if nothing does."""
    config = dict(trial.history[-1].config)
    return ", ".join(f"{name}={_value(config[name])}" for name in tally.telling(config))


def _value(value: object) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Schedule(kind=kind, arguments=arguments):
            return f"{kind}({', '.join(map(_value, arguments))})"
        case _:
            return str(value)
