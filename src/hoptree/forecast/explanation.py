"""Explaining a study: what is left of it runs in a simulation, with the same searches and the same engine.

Times were measured by earlier runs, or else in a pilot. Made-up reports replace those that are not known yet. So
the forecast is exact for a fixed search, and the mean of several examples for an adaptive one; they widen the
range.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence, Set
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

from hoptree.backends.event_loop import TrialAsker, drive
from hoptree.backends.local import slot_folders, slot_folders_of_study
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import DropState, Evaluate, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    CostsLearned,
    DriverStarted,
    Event,
    Metrics,
    StateLost,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
    TrialStopped,
    UnitFinished,
)
from hoptree.core.lineage import History, Values
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.driver.request_queue import RequestQueue
from hoptree.driver.state_reuse import StateIndex
from hoptree.estimate import WIDE
from hoptree.forecast.forecast import Account, Expectation, Forecast
from hoptree.forecast.measured import Measured
from hoptree.record.record import Record, ReplayedRequests
from hoptree.record.results import Savings
from hoptree.report.stage_tree import stage_tree
from hoptree.report.timeline import Span, Timeline
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Landscape
from hoptree.worker.slots import find_states

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.store.journal import Recorded

_SIMULATED = 150_000  # units in all simulations together, at most about
_DRAWN = 20_000  # units up to which a chart is drawn
_MOST_WORKERS = 64
_NO_GAIN = 0.97  # a time above this share of the previous one ends the table of workers
_EXAMPLES = 3  # simulations with different made-up reports
_MORE_EXAMPLES = 16  # if their times differ


class StudyHistory(NamedTuple):
    """What is known of a study besides its searches: its journal, and what the store holds.

    ``studies`` are names, and whether their trials share work: one study, or those of a group. ``root`` and
    ``variant`` are those that a run would train under. With ``retries`` it would train failed trials again,
    because code or data have changed.
    """

    settings: Settings
    goal: str
    maximize: bool
    journal: Sequence[Recorded]
    store: Store | None
    name: str
    studies: Sequence[tuple[str, bool]]
    root: str
    retries: bool = False
    variant: str = ""
    platform: dict[str, str] | None = None


@final
class SimulatedRun:
    """One simulated run of a study, or of what is left of it."""

    def __init__(self, engine: Engine, first: Sequence[Event], measured: Measured, threads: int) -> None:
        self.engine = engine
        self._first = first
        self._measured = measured
        self._threads = threads
        self._bytes = sum(len(node.states) * measured.state_bytes(node.values) for node in engine.plan.walk())
        self.peak_bytes = self._bytes
        self._initial = 0  # initial events that the engine has not seen yet
        self.shares: dict[Values, float] = {}  # seconds of trained units, by values
        self.makespan = 0.0
        self.cpu_seconds = 0.0  # of units and evaluations, without overhead
        self.later = 0  # requests of searches in answer to results
        self.backend: SimulatedBackend | None = None

    def run(
        self,
        tuner: TrialAsker,
        workers: int,
        metrics: Callable[[Values, int, str], Metrics],
        look_up: Callable[[Event], Event] | None,
        *,
        crowded: bool,
    ) -> None:
        """Simulate the run on workers that all hold all partitions."""
        settings = self.engine.settings
        slow = max(1.0, workers * self._threads / (os.cpu_count() or 1)) if crowded else 1.0
        backend = self.backend = SimulatedBackend(
            Cluster(workers=workers, replicas=workers, provisioning=self._measured.start),
            settings.partitions,
            Landscape(
                lambda values: slow * self._measured.unit(values),
                metrics,
                lambda values: slow * self._measured.evaluation(values),
            ),
        )
        first: list[Event] = [CostsLearned(self._measured.formula), *self._first]
        self._initial = len(first)
        self.makespan = drive(self.engine, backend, tuner, [self._watch], first, look_up)

    def _watch(self, step: Step) -> None:
        event = step.event
        if isinstance(event, UnitFinished) and isinstance(step.run, RunUnit):
            self._bytes += self._measured.state_bytes(step.run.values)
            self.peak_bytes = max(self.peak_bytes, self._bytes)
        self._initial -= 1
        asked = isinstance(event, TrialAsked | TrialBranched | TrialExtended | TrialStopped | TrialRetried)
        self.later += asked and self._initial < 0
        for action in step.actions:
            if isinstance(action, RunUnit | Evaluate):
                self.cpu_seconds += self._measured.cpu(action, self.engine.plan)
            if isinstance(action, RunUnit):
                self.shares[action.values] = self.shares.get(action.values, 0.0) + self._measured.unit(
                    action.values
                )
            elif isinstance(action, DropState):
                self._bytes -= self._measured.state_bytes(self.engine.plan.nodes[action.node].values)

    @property
    def units(self) -> int:
        """The number of trained units."""
        return self.backend.units if self.backend is not None else 0


@final
class Explainer:
    """Simulates a study; ``make_tuner`` returns its searches in their initial state."""

    def __init__(
        self,
        history: StudyHistory,
        make_tuner: Callable[[TrialNumbers], TrialAsker],
        measured: Measured,
        *,
        threads: int,
    ) -> None:
        self._history = history
        self._make_tuner = make_tuner
        self._measured = measured
        self._threads = threads
        self._reports = self._past_reports()
        self._units = 0
        # states that a killed driver has left in this machine's memory, where the next one finds them
        folders = slot_folders_of_study(history.store.folder, history.name) if history.store is not None else []
        self._slots = find_states(slot_folders(folders))

    def explain(self, workers: int) -> Forecast:
        """Return what is left, what it takes on several numbers of workers, and what has happened so far."""
        runs = [self._simulate_rest(workers, 0)]
        if runs[0].units and runs[0].units * _EXAMPLES < _SIMULATED:
            runs += [self._simulate_rest(workers, salt) for salt in range(1, _EXAMPLES)]
        exact = _is_exact(runs)
        if not exact:
            more = min(_MORE_EXAMPLES, _SIMULATED // max(1, runs[0].units))
            runs += [self._simulate_rest(workers, salt) for salt in range(len(runs), more)]
        mean = fmean(run.makespan for run in runs)
        chosen = min(runs, key=lambda run: abs(run.makespan - mean))
        spread = math.hypot(self._measured.doubt(chosen.shares), _spread([run.makespan for run in runs]))
        around = self._measured.opening + self._measured.closing if chosen.units else 0.0
        seconds = mean + around
        low, high = seconds * math.exp(-WIDE * spread), seconds * math.exp(WIDE * spread)
        stored = frozenset() if self._history.store is None else frozenset(self._history.store.states.keys())
        left = msgspec.structs.replace(
            self._account(chosen, workers, stored), seconds=seconds, least=low, most=high
        )
        whole, happened = self._past(workers)
        return Forecast(
            study=self._history.name,
            left=left,
            by_workers=list(self._by_workers(chosen, workers, left)) if chosen.units else [],
            basis=self._measured.basis,
            exact=exact,
            cores=os.cpu_count() or 1,
            tree=stage_tree(chosen.engine.plan, list(chosen.engine.trials.values())),
            sessions=self._measured.sessions,
            timeline=_timeline(chosen),
            whole=whole,
            happened=happened,
            platform=self._history.platform or {},
            pilot_seconds=self._measured.pilot_seconds,
        )

    # --- simulations ------------------------------------------------------------------------------------

    def _simulate_rest(self, workers: int, salt: int, *, crowded: bool = True) -> SimulatedRun:
        """Simulate what is not in the journal, from the states that exist."""
        history = self._history
        record = Record(history.settings)
        numbers = TrialNumbers([name for name, _ in history.studies])
        tuner = self._make_tuner(numbers)
        pending = record.resume(tuner, history.journal, numbers)
        if history.store is not None:
            requests = RequestQueue(
                history.store, record, history.studies, history.root, numbers, warn=lambda _: None
            )  # a run warns
            pending += requests.take()
            failed = [trial for trial in record.trials if history.retries and trial.ending == "failed"]
            pending += [TrialRetried(trial.number) for trial in failed]
            tuner = requests.with_requests(tuner)
        engine = Engine(history.settings, state=record.state)
        base = history.root, history.variant
        rebased = [TrialRebased(trial.number, *base) for trial in record.trials if trial.base_to_come != base]
        run = SimulatedRun(engine, [*self._first_events(engine), *rebased, *pending], self._measured, self._threads)
        if not pending and not record.live and not self._lost(engine):
            return run
        index = None if history.store is None else StateIndex(history.store, history.name, 0, holds=False)

        def look_up(event: Event) -> Event:
            if isinstance(event, TrialAsked):
                event = msgspec.structs.replace(event, variant=history.variant)
            return event if index is None else index.look_up(event, record.state)

        run.run(tuner, workers, self._metrics(salt), look_up, crowded=crowded)
        self._units += run.units
        return run

    def _first_events(self, engine: Engine) -> Iterator[Event]:
        """Yield events for the start of a driver, and for states that are lost."""
        yield DriverStarted()
        yield from self._lost(engine)

    def _lost(self, engine: Engine) -> list[StateLost]:
        """Return the states of the journal that exist neither in memory nor in the store."""
        store = self._history.store
        return [
            StateLost(node.id, state.unit)
            for node in engine.plan.nodes
            for state in node.states.values()
            if state.key not in self._slots and (store is None or state.key not in store.states)
        ]

    def _simulate_whole(self, workers: int) -> SimulatedRun:
        """Simulate the study from the start: its requests, and what the store held for them then."""
        tuner = ReplayedRequests(self._history.settings, self._history.journal)
        run = SimulatedRun(Engine(self._history.settings), tuner.start(), self._measured, self._threads)
        run.run(tuner, workers, self._metrics(0), None, crowded=True)
        return run

    def _metrics(self, salt: int) -> Callable[[Values, int, str], Metrics]:
        def metrics(values: Values, epoch: int, key: str) -> Metrics:
            known = self._reports.get((key, epoch))
            if known is not None:
                return known
            loss = self._measured.results.level(values, key, salt) + 1.0 / (1 + epoch)
            return {self._history.goal: -loss if self._history.maximize else loss}

        return metrics

    def _past_reports(self) -> dict[tuple[str, int], Metrics]:
        record = Record(self._history.settings).read(self._history.journal)
        partitions = self._history.settings.partitions
        return {
            (node.key, unit // partitions): metrics
            for node in record.plan.nodes
            for unit, metrics in node.reports.items()
        }

    # --- figures ----------------------------------------------------------------------------------------

    def _account(self, run: SimulatedRun, workers: int, stored: Set[str] = frozenset()) -> Account:
        """Return the figures of a run; states that are ``stored`` already take no more disk."""
        engine = run.engine
        work = Savings.count(engine.state, run.units, 0)
        finals = {trial.final for trial in engine.trials.values() if trial.final is not None}
        new = [place for place in finals if place.node.state_key(place.unit) not in stored]
        sizes = [self._measured.state_bytes(place.node.values) for place in new]
        models = 2 * workers * max((self._measured.state_bytes(values) for values in run.shares), default=0.0)
        return Account(
            trials=len(engine.trials),
            epochs_asked=work.epochs_asked,
            epochs_trained=work.epochs_trained,
            epochs_reused=work.epochs_reused,
            merge_rate=work.merge_rate,
            units=run.units,
            workers=workers,
            seconds=run.makespan,
            cpu_seconds=run.cpu_seconds,
            memory=round(run.peak_bytes + models) if run.units else 0,
            disk=round(math.fsum(sizes)),
        )

    def _by_workers(self, chosen: SimulatedRun, workers: int, left: Account) -> Iterator[Expectation]:
        """Yield the times on 1, 2, 4 … workers as long as more of them help, and on the chosen number."""
        counts = sorted({workers, *(2**power for power in range(_MOST_WORKERS.bit_length()))})
        low, high = (left.least or 0.0) / left.seconds, (left.most or 0.0) / left.seconds
        around = self._measured.opening + self._measured.closing
        before = math.inf
        for number in counts:
            if self._units + chosen.units > _SIMULATED:
                return
            run = self._simulate_rest(number, 0, crowded=False)
            if run.makespan > _NO_GAIN * before and number > workers:
                return
            before = run.makespan
            seconds = run.makespan + around
            yield Expectation(number, seconds, seconds * low, seconds * high)

    def _past(self, workers: int) -> tuple[Account | None, Account | None]:
        happened = self._measured.happened
        if happened is None:
            return None, None
        used = happened.workers or workers
        whole = self._simulate_whole(used)
        spread = self._measured.doubt(whole.shares)
        seconds = whole.makespan + (self._measured.sessions - 1) * self._measured.start
        account = msgspec.structs.replace(
            self._account(whole, used),
            seconds=seconds,
            least=seconds * math.exp(-WIDE * spread),
            most=seconds * math.exp(WIDE * spread),
        )
        return account, happened


def _is_exact(runs: Sequence[SimulatedRun]) -> bool:
    """Return whether requests do not depend on results: all examples agree or, of one, none came later."""
    if len(runs) == 1:
        return not runs[0].later
    return all(_requested_trials(run) == _requested_trials(runs[0]) for run in runs)


def _spread(spans: Sequence[float]) -> float:
    """Return the standard deviation of the logs of some times."""
    logs = [math.log(span) for span in spans if span > 0]
    return stdev(logs) if len(logs) > 1 else 0.0


def _requested_trials(run: SimulatedRun) -> list[tuple[int, History, int]]:
    """Return the trials that were requested; if examples differ in them, they depend on results."""
    return [(trial.number, trial.history, trial.epochs) for trial in run.engine.trials.values()]


def _timeline(run: SimulatedRun) -> Timeline:
    if run.backend is None or not 0 < run.units <= _DRAWN:
        return Timeline((), 0.0, ())
    spans = tuple(
        Span(
            span.worker,
            span.start,
            span.end,
            span.kind,
            max(0, span.node),
            f"lineage {span.node}",
            span.partition,
            span.epoch,
        )
        for span in run.backend.did
    )
    return Timeline.of(spans, sorted(run.engine.workers.by_name, key=lambda name: (len(name), name)))
