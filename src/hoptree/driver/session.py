"""One run of a study by one driver: it replays the journal, then trains until nothing is left or it is stopped.

Workers, user requests, other drivers on the store, learned costs and stop requests are event sources of one loop.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.backends.choice import worker_count
from hoptree.backends.event_loop import EventSource, Observer, drive
from hoptree.backends.local import remove_slots, slot_folders_of_study
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.pool_options import PoolHooks
from hoptree.backends.protocol import Backend, FindsStates, ReportsTraffic, Wakeable
from hoptree.core.engine import Engine
from hoptree.core.errors import HoptreeError
from hoptree.core.events import USER, DriverStarted, Event, StateLost, TrialAsked
from hoptree.core.policy_choice import named
from hoptree.core.saving import SavePolicy
from hoptree.core.steps import Step
from hoptree.driver.coordination import ClaimingBackend
from hoptree.driver.elastic_settings import ElasticSettings
from hoptree.driver.event_sources import Draining, Periodic, StopRequest
from hoptree.driver.followed_plan import FollowedPlan
from hoptree.driver.layout_watch import LayoutWatch
from hoptree.driver.ledger_backend import LedgerBackend
from hoptree.driver.not_finite import NotFiniteMetrics, warn_of_data
from hoptree.driver.open_backend import RehearsalPlan, open_backend
from hoptree.driver.opened_study import OpenedStudy
from hoptree.driver.options import RunOptions
from hoptree.driver.recorder import JournalRecorder
from hoptree.driver.rehearsal_configs import to_change, to_rehearse
from hoptree.driver.request_queue import RequestQueue
from hoptree.driver.request_validation import retry_failed_requests
from hoptree.driver.run_layouts import RunLayouts
from hoptree.driver.state_reuse import StateIndex
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.time_limit import TimeLimit, first_report_seconds
from hoptree.driver.variant_choice import VariantChoice
from hoptree.estimate import Estimator
from hoptree.progress import BudgetTracker, ProgressReporter
from hoptree.record.record import Record
from hoptree.record.results import Savings
from hoptree.search.budget_estimate import total_budget_estimate
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuners

if TYPE_CHECKING:
    from hoptree.progress.run_view import RunView
    from hoptree.store import Store

_POLL = 2.0  # seconds between two polls of the store: lease, requests, costs
_POLL_STOP = 0.5  # seconds between two checks whether another process asked to stop
_LEARNED = 5_000  # journal entries before a snapshot from which the costs of units are learned
_TICK = 1.0  # seconds after which a display is refreshed though nothing happened

log = logging.getLogger("hoptree")


class StoppedError(HoptreeError):
    """A stop was requested before anything was trained."""


@final
class Session:
    """One run of a study group; the constructor replays the journal, ``train`` does the rest."""

    def __init__(
        self,
        opened: OpenedStudy,
        group: StudyGroup,
        options: RunOptions,
        stop: StopRequest,
        limit: TimeLimit,
        only: int | None,
        elastic: ElasticSettings | None = None,
    ) -> None:
        store, record, spec = opened.store, opened.record, opened.agreed.spec
        self._opened = opened
        self._store, self._lease, self._record, self._spec = store, opened.lease, record, spec
        self._group = group
        self._options = options
        self._stop = stop
        self._limit = limit
        limit.call(self._request_stop)
        self._only = only
        self._elastic = elastic
        self.has_begun = False  # whether anything may have been written to the journal
        self._backend: Backend | None = None
        self._reporter: ProgressReporter | None = None
        self._estimator = Estimator()
        numbers = TrialNumbers(group.names)
        self._tuners = Tuners([], numbers) if only is not None else group.tuners(spec, numbers)
        self._requests = RequestQueue(store, record, group.shares, spec.root, numbers)
        self._recorder = JournalRecorder(store, opened.lease, record, opened.seq)
        self._pending = self._replay(opened.seq, numbers)
        self._variant = VariantChoice(store, group, options, spec, record)
        self._variant.refuse_changes()
        if opened.agreed.is_changed:
            self._accept_changes()
        self._pending += self._requests.take()
        saving = SavePolicy(every=group.save_every, spares=spec.settings.order == "strict")
        policy = group.policy(options.policy, spec)
        settings = named(spec.settings, options.policy)
        self._layouts = RunLayouts(store, group, spec, options, record)
        self._engine = Engine(
            settings,
            policy=policy,
            state=record.state,
            saving=saving,
            allotment=self._layouts.allotment(),
            layouts=self._layouts.choice,
            replication=self._layouts.replication(),
        )
        self._index = StateIndex(store, group.name, max(study.keep for study in group.studies))
        self._draining = Draining(self._engine, stop)

    def view(self) -> RunView | None:
        """Return a view of the run at this moment; None before it starts and after it ends."""
        return None if self._reporter is None else self._reporter.view()

    def wake(self) -> None:
        """Let the loop notice a stop request soon; may be called from any thread or a signal handler."""
        backend: object = self._backend
        if isinstance(backend, Wakeable):
            backend.wake()

    def train(self, observers: Sequence[Observer]) -> Savings:
        """Train until nothing is left or a stop is requested, and return the savings of this run."""
        record, name = self._record, self._group.name
        if not self._pending and not record.live and _has_all_states(self._store, record):
            # A driver that was killed at the very end has left its slots.
            remove_slots(slot_folders_of_study(self._store.folder, name), self._lease.token)
            self._requests.close()
            return Savings.count(record.state, units=0, bytes_hopped=0)
        self._store.catalog.set_status(name, "running")
        warn_of_data(self._group.first.data)
        reporter = self._reporter = self._make_reporter()
        backend = self._backend = self._open_backend(reporter)
        lost = list(_lost_states(record, backend))
        costs = self._costs()
        own, sources = self._own_observers(reporter), self._sources(reporter)
        outer = self._wrap(backend, own, sources)
        try:
            outer, planned = self._follow_plan(backend, outer, own, sources)
        except BaseException:
            backend.stop(failed=True)
            raise
        try:
            reporter.begin(self._engine, self._estimator)
            with self._interruptible(), suppress(StoppedError):
                drive(
                    self._engine,
                    outer,
                    self._requests.with_requests(self._limit.holding_back(self._tuners, self._first_report)),
                    [*own, *observers],
                    lambda: [
                        DriverStarted(),
                        *planned,
                        *lost,
                        *self._variant.decide(backend),
                        *costs,
                        *self._pending,
                    ],
                    lambda event: self._index.look_up(self._variant.with_variant(event), record.state),
                    lambda: self._draining.is_over or self._has_ended(),
                    record.now,
                    sources,
                )
        finally:
            reporter.end()
            self._reporter = None
        self._recorder.write_snapshot()
        if not record.live and self._only is None:
            self._requests.close()
        return self._savings()

    # --- before training ------------------------------------------------------------------------------------

    def _replay(self, seq: int, numbers: TrialNumbers) -> list[Event]:
        """Read the journal from the snapshot at ``seq``; return what searches asked for and is not in it."""
        name, journal = self._group.name, self._store.journal
        first = max(0, seq - _LEARNED)
        learned = islice(journal.read(name, first), seq - first) if seq else ()
        self._estimator.resume(self._record.plan, (recorded.entry for recorded in learned))
        return self._record.resume(self._tuners, journal.read(name, seq), numbers, [self._estimator.watch])

    def _accept_changes(self) -> None:
        """Store the changed spec, after requests to retry failed trials: changed code may not fail again."""
        for study in self._group.names:
            self._store.requests.make(study, *retry_failed_requests(self._record, study))
        self._store.catalog.set_spec(self._group.name, msgspec.to_builtins(self._spec))

    def _make_reporter(self) -> ProgressReporter:
        group, options = self._group, self._options
        estimates = {study.name: total_budget_estimate(study.search) for study in group.studies}
        trainer = group.first.trainer
        workers = worker_count(options.workers, trainer) if options.backend == "local" else options.workers or 0
        logs = self._store.folder / "logs"
        return ProgressReporter(options.make_display(), group.goals, workers, logs, BudgetTracker(estimates))

    def _open_backend(self, reporter: ProgressReporter) -> Backend:
        configs = to_rehearse(self._record.trials, self._pending, self._group.examples)
        configs = self._variant.comparable_first(configs)
        rehearsal = RehearsalPlan(configs, to_change(self._record.trials, self._pending), self._layouts.offer)

        def tick() -> None:
            self._lease.renew()  # nothing else renews it while workers start
            reporter.tick()
            self._limit.poll()
            if self._limit.is_over:
                raise StoppedError("the time limit was over before the workers had started")

        variants = self._variant.variants
        hooks = PoolHooks(
            longest=self._estimator.longest,
            tick=tick,
            workers_needed=lambda: 0 if self._stop.asked else max(1, self._engine.plan.lineages),
            observed=variants.observed,
        )
        instance = None if self._elastic is None else self._elastic.instance
        return open_backend(
            self._opened, self._group, self._options, self._index, rehearsal, variants, hooks, instance
        )

    # --- the loop -------------------------------------------------------------------------------------------

    def _own_observers(self, reporter: ProgressReporter) -> list[Observer]:
        return [
            self._note_beginning,
            self._recorder.append,
            self._layouts.note,
            self._record.note,
            self._recorder.take_snapshot,
            self._recorder.log_failures,
            NotFiniteMetrics(self._record, self._group.goals).note,
            reporter.see,
            self._estimator.watch,
            self._draining.see,
        ]

    def _wrap(self, backend: Backend, observers: list[Observer], sources: list[EventSource]) -> Backend:
        """Return the backend with the ledger, and with claims if it shares work with other drivers."""
        if not isinstance(backend, PoolBackend):
            return LedgerBackend(backend, self._store.states, self._index)
        if not self._spec.share or self._spec.settings.order != "strict":
            return backend
        claims = self._store.claims(self._lease, self._group.names)
        resumed = bool(self._record.by_number)
        claiming = ClaimingBackend(self._engine, claims, self._index, resumed=resumed, now=self._record.now)
        observers.append(claiming.note)
        sources.append(Periodic(claiming.poll, claiming.poll_interval))
        return claiming.wrap(backend)

    def _follow_plan(
        self, backend: Backend, outer: Backend, observers: list[Observer], sources: list[EventSource]
    ) -> tuple[Backend, list[Event]]:
        """Request the nodes of the plan; return the backend, and what is to be recorded of them."""
        if self._elastic is None:
            return outer, []
        plan = FollowedPlan(self._elastic, self._record.state, self._estimator, self._record.now)
        events, decider = plan.connect(backend)
        if decider is not None:
            observers.append(decider.see)
            sources.append(decider)
        return plan.wrap(outer), events

    def _sources(self, reporter: ProgressReporter) -> list[EventSource]:
        def renew() -> Sequence[Event]:
            self._lease.renew()
            return ()

        def check_stop() -> Sequence[Event]:
            if not self._stop.asked and self._lease.is_asked_to_stop():
                log.warning("stopping when the running units are done, as another process asked")
                self._request_stop()
            return ()

        def tick() -> Sequence[Event]:
            reporter.tick()
            return ()

        return [
            self._draining,
            self._limit,
            Periodic(renew, lambda: _POLL),
            Periodic(check_stop, lambda: _POLL_STOP),
            Periodic(self._requests.take, lambda: _POLL),
            Periodic(self._costs, lambda: _POLL),
            Periodic(tick, lambda: _TICK),
            Periodic(LayoutWatch(self._engine, time.monotonic).poll, lambda: _POLL),
        ]

    def _note_beginning(self, step: Step) -> None:
        self.has_begun = True

    def _first_report(self, event: TrialAsked) -> float:
        times = self._estimator
        return first_report_seconds(event, self._spec.settings.partitions, times.unit, times.evaluation)

    def _costs(self) -> list[Event]:
        costs = self._estimator.news()
        return [] if costs is None else [costs]

    def _has_ended(self) -> bool:
        """Return whether the only trial that is to be trained has ended."""
        if self._only is None:
            return False
        asked = [trial for trial in self._record.trials if trial.asked_by == (USER, self._only)]
        return any(trial.ending is not None for trial in asked)

    def _savings(self) -> Savings:
        backend: object = self._backend
        state = self._record.state
        if not isinstance(backend, ReportsTraffic):
            return Savings.count(state, units=state.units, bytes_hopped=0)
        return Savings.count(
            state,
            backend.units,
            backend.bytes_hopped,
            backend.state_bytes,
            backend.bytes_between_nodes,
            backend.made,
        )

    # --- Ctrl-C ---------------------------------------------------------------------------------------------

    def _request_stop(self) -> None:
        self._stop.asked = True
        self.wake()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C stop the run, and restore the embedding program's handler afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, *_: object) -> None:
        if self._stop.asked:
            raise KeyboardInterrupt
        self._request_stop()
        if not self._draining.has_workers:
            raise StoppedError("stopped on request, before anything was trained")
        log.warning("stopping when the running units are done; interrupt again to stop at once")


def _has_all_states(store: Store, record: Record) -> bool:
    """Return whether the store has every state that the study needs."""
    if any(trial.lost_state and trial.onward is None for trial in record.trials):
        return False
    nodes = record.plan.nodes
    return all(state.key in store.states for node in nodes for state in node.states.values())


def _lost_states(record: Record, backend: Backend) -> Iterator[Event]:
    """Yield an event for each state that did not survive the last driver."""
    for node in record.plan.nodes:
        for state in list(node.states.values()):
            if not isinstance(backend, FindsStates) or not backend.adopt(node.id, state.unit, state.key):
                yield StateLost(node.id, state.unit)
