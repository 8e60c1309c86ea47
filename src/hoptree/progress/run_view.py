"""A view of a run: its current state as plain values, for terminals and notebooks to draw."""

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

_ROWS = 400  # trials with details at most
_SHARE = 0.02  # share of the driver's time that may be spent on counting the work of all trials
_ALMOST = 0.99
STARTING = "starting"  # the activity of a worker that has not joined yet


class TrialView(msgspec.Struct, frozen=True):
    """A trial that has not ended: its progress, its curve, and which workers train it now."""

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
    """A worker and its current activity."""

    name: str
    doing: str


@final
class RunView(msgspec.Struct, frozen=True):
    """The current state of a run.

    ``rows`` are trials that have not ended, those in training first; ``hidden`` counts further ones.
    ``epochs_asked`` counts the epochs of all trials, ``epochs_unique`` counts shared ones once. ``fraction`` never
    decreases, and is None if it is unknown what searches will request. ``open_ended`` means that ``left`` covers
    only what has been requested so far, and more may follow.
    """

    studies: tuple[str, ...]
    metrics: tuple[str, ...]
    elapsed: float
    fraction: float | None
    left: TimeLeft | None
    counts: dict[str, int]
    best_trials: tuple[BestTrialView, ...]
    workers: tuple[WorkerView, ...]
    rows: tuple[TrialView, ...]
    hidden: int
    epochs_asked: float
    epochs_unique: float
    epochs_trained: float
    failures: tuple[Failure, ...] = ()
    open_ended: bool = False


@final
class RunViews:
    """Creates views from statistics; expensive parts are computed less often, to save the driver's time."""

    def __init__(
        self,
        stats: RunStats,
        workers: int,
        estimator: Estimator,
        budget: BudgetTracker | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.stats = stats
        self._workers = workers
        self._budget = budget or BudgetTracker()
        self._remaining = TimeLeftEstimator(stats, estimator, self._budget, cpu)
        self._clock = stats.clock
        self._begun = stats.clock()
        self._work = Work(0, 0)
        self._limit = RateLimit(_SHARE, stats.clock, cpu)
        self._fraction = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the driver started."""
        return self._clock() - self._begun

    def view(self, over: bool = False) -> RunView:
        """Return the current view, or with ``over`` the final one."""
        stats, engine = self.stats, self.stats.engine
        partitions = engine.settings.partitions
        trained_by = self._training()
        rows = sorted(
            stats.live.values(),
            key=lambda each: (each.trial.number not in trained_by, not each.values, each.study, each.number),
        )
        work = self._counted(over)
        running = sum(bool(each.values) or each.trial.number in trained_by for each in stats.live.values())
        return RunView(
            studies=tuple(stats.goals),
            metrics=tuple(dict.fromkeys(goal.metric for goal in stats.goals.values())),
            elapsed=self.elapsed,
            fraction=self._progress(over),
            left=self._remaining.remaining() if stats.live else None,
            counts={
                **{ending: stats.endings[ending] for ending in ("complete", "stopped", "failed")},
                "running": running,
                "waiting": len(stats.live) - running,
            },
            best_trials=tuple(_best_view(each, stats) for each in (stats.final() if over else stats.best.values())),
            workers=self._worker_views(),
            rows=tuple(_row(each, stats, trained_by.get(each.trial.number, ())) for each in rows[:_ROWS]),
            hidden=max(0, len(rows) - _ROWS),
            epochs_asked=work.asked / partitions,
            epochs_unique=work.unique / partitions,
            epochs_trained=stats.units / partitions,
            failures=tuple(stats.failures),
            open_ended=not self._budget.known or self._budget.is_exceeded(stats),
        )

    def _progress(self, over: bool) -> float | None:
        """Return the finished fraction of requested and expected work; it never decreases.

        It stays below 1 until the run has ended, because a search may request more than expected.
        """
        stats, demand = self.stats, self.stats.engine.open_work
        if over and stats.trials and not stats.live:
            return 1.0
        if not self._budget.known:
            return None
        done = sum(demand.done)
        asked = done + max(0.0, demand.backlog)
        if asked > 0:
            now = done / (asked * (1 + self._budget.remaining(stats).expected))
            self._fraction = max(self._fraction, min(now, _ALMOST))
        return self._fraction

    def _training(self) -> dict[int, list[str]]:
        """Return the workers that train each trial now; a worker can train several trials that share a prefix."""
        found: dict[int, list[str]] = {}
        for worker, queue in self.stats.queues.items():
            for trial in self._behind(queue[:1]):
                found.setdefault(trial.number, []).append(self.stats.workers.get(worker, worker))
        return found

    def _behind(self, actions: Iterable[RunUnit | Evaluate]) -> list[Trial]:
        """Return the trials that wait for some runs."""
        engine = self.stats.engine
        found: dict[int, Trial] = {}
        for action in actions:
            run = engine.runs.get(action.run)
            if run is None:
                continue
            after = action.unit if isinstance(action, Evaluate) else action.unit + 1
            found.update((trial.number, trial) for trial in run.node.requests.get(after, ()))
            if run.lineage is not None:
                found.update((trial.number, trial) for trial in engine.open_work.trials_behind(run.lineage))
        return list(found.values())

    def _worker_views(self) -> tuple[WorkerView, ...]:
        stats = self.stats
        workers = [WorkerView(called, self._doing(name)) for name, called in stats.workers.items()]
        missing = range(len(workers), self._workers)
        return (*workers, *(WorkerView(f"w{i}", STARTING) for i in missing))

    def _doing(self, worker: str) -> str:
        queue = self.stats.queues.get(worker)
        if not queue:
            return "idle"
        action, trials = queue[0], self._behind(queue[:1])
        numbers = sorted(self.stats.trials[each.number].number for each in trials)
        trial = f"trial {numbers[0]}" if numbers else "a trial"
        others = f" +{len(numbers) - 1}" if len(numbers) > 1 else ""
        if isinstance(action, Evaluate):
            return f"{trial}{others}: evaluating"
        partitions = self.stats.engine.settings.partitions
        return f"{trial}{others}: epoch {action.epoch + 1}, {action.unit % partitions + 1} of {partitions}"

    def _counted(self, over: bool) -> Work:
        """Count the work of all trials; this is slow with many trials, so it is done less often."""
        if over or self._limit.is_due:
            with self._limit:
                engine = self.stats.engine
                self._work = engine.plan.work(engine.trials.values())
        return self._work


def _row(trial_stats: TrialStats, stats: RunStats, by: Iterable[str]) -> TrialView:
    trial = trial_stats.trial
    return TrialView(
        number=trial_stats.number,
        study=trial_stats.study,
        epochs=trial.reached,
        until=trial.until,
        values=tuple(trial_stats.values),
        config=_config(trial, stats),
        by=tuple(by),
    )


def _best_view(trial_stats: TrialStats, stats: RunStats) -> BestTrialView:
    config = _config(trial_stats.trial, stats)
    return BestTrialView(
        trial_stats.number, trial_stats.study, trial_stats.goal.metric, trial_stats.values[-1], config
    )


def _config(trial: Trial, stats: RunStats) -> str:
    """Return the values in which a trial differs from others, or its whole config if none differ."""
    config = dict(trial.history[-1].config)
    return ", ".join(f"{name}={_value(config[name])}" for name in stats.distinguishing(config))


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
