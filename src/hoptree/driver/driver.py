"""The driver: runs one study, or several together, from where their journal ends until nothing is left to train.

It takes the lease of the study, folds the journal, and owns the loop. Workers, requests of users, other drivers on
the store, costs that were learned and the wish to stop are event sources of the same rank.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec

from hoptree.backends.choice import find_backend, make_pool, worker_count
from hoptree.backends.event_loop import EventSource, Observer, drive
from hoptree.backends.job import TrainingJob
from hoptree.backends.local import remove_slots, slots_of
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.pool_options import PoolHooks, PoolOptions
from hoptree.backends.protocol import Backend, FindsStates, ReportsTraffic, Wakeable
from hoptree.backends.ray_settings import Ray
from hoptree.backends.rehearsals import Rehearsals
from hoptree.core.engine import Engine
from hoptree.core.errors import HoptreeError
from hoptree.core.events import USER, DriverStarted, Event, StateLost
from hoptree.core.policy_choice import named
from hoptree.core.saving import SavePolicy
from hoptree.core.steps import Step
from hoptree.driver.coordination import ClaimingBackend
from hoptree.driver.event_sources import Draining, Periodic
from hoptree.driver.ledger_backend import LedgerBackend
from hoptree.driver.not_finite import NotFiniteMetrics, warn_of_data
from hoptree.driver.options import RunOptions
from hoptree.driver.recorder import JournalRecorder
from hoptree.driver.rehearsal_configs import to_change, to_rehearse
from hoptree.driver.request_queue import RequestQueue
from hoptree.driver.request_validation import retrials_of_failed
from hoptree.driver.state_reuse import StateIndex
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.variant_choice import VariantChoice
from hoptree.estimate import Estimator
from hoptree.progress import BudgetTracker, ProgressReporter
from hoptree.record.opening import last_snapshot
from hoptree.record.record import Record
from hoptree.record.results import Savings
from hoptree.record.spec import AgreedSpec, StudySpec, agree
from hoptree.search.budget_estimate import outlook_of
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuners

if TYPE_CHECKING:
    from hoptree.progress.run_view import RunView
    from hoptree.store import Lease, Status, Store
    from hoptree.store.requests import UserRequest

_LOOK = 2.0  # seconds between two looks at the store: signs of life, requests, costs
_OBEY = 0.5  # seconds between two looks at whether somebody has asked to stop
_LEARNED = 5_000  # entries before a snapshot from which is learned what units take
_TICK = 1.0  # seconds after which who looks on is shown that time passes, though nothing happens

Outcome = TypeVar("Outcome")
log = logging.getLogger("hoptree")


class StoppedError(HoptreeError):
    """Somebody asked to stop before anything was trained."""


@final
class Driver:
    """Drives a group of studies; ``follow`` are watches for each run, made when its record is known.

    ``run`` blocks until all is done, or ``stop`` was called, by another thread or by Ctrl-C: then what runs ends
    and all states are saved, and the study goes on another time. With ``only`` the trial of one user request is
    trained until it ends, whatever searches would ask for next.
    """

    def __init__(
        self,
        group: StudyGroup,
        options: RunOptions,
        *,
        follow: Callable[[Record, ExitStack], Sequence[Observer]] = lambda _record, _stack: (),
        only: int | None = None,
    ) -> None:
        self._group = group
        self._options = options
        self._follow = follow
        self._only = only
        self._stop_asked = False
        self._draining: Draining | None = None
        self._backend: Backend | None = None
        self._spectator: ProgressReporter | None = None
        self._estimator = Estimator()
        self._begun = False  # whether anything may have been written to the journal
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    # --- what others may call -----------------------------------------------------------------------------

    def run(self, conclude: Callable[[Store, Record, Savings], Outcome]) -> Outcome:
        """Train what is missing, and return what ``conclude`` makes of it while the store is open."""
        with ExitStack() as stack:
            store = stack.enter_context(self._group.first.open_store())
            lease = self._take_lease(store, stack)
            self._group.first.data.check()
            before = store.catalog.find(self._group.name)
            accept = self._options.accept_changes
            specs = self._group.specs  # once: they look at all of the user's code
            self._group.policy(self._options.policy, StudySpec.together(specs))  # refuses nonsense
            agreed = agree(store, self._group.name, specs, accept, self._group.widens)
            spec = agreed.spec
            record, seq = last_snapshot(store, self._group.name, spec.settings)
            try:
                savings = self._train(store, lease, agreed, record, seq, stack)
            except Exception:
                if self._begun:
                    store.catalog.set_status(self._group.name, "failed")
                elif before is not None:  # it was refused before anything was looked at: it is what it was
                    store.catalog.set_status(self._group.name, before.status)
                else:
                    store.catalog.withdraw(self._group.name)  # it was refused: there is nothing others should see
                raise
            status: Status = "stopped" if record.live else "finished"
            if self._only is not None:  # whatever that trial has come to, the searches have not
                over = before is not None and before.status in ("finished", "failed") and not record.live
                status = before.status if over and before is not None else "stopped"
            store.catalog.set_status(self._group.name, status)
            return conclude(store, record, savings)

    def start(self) -> None:
        """Run in a thread of its own; ``join`` waits for it."""
        self._thread = threading.Thread(target=self._run_apart, name=f"driver of {self._group.name}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended, and raise what ended it."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let what runs end, save it, and return from ``run``; from any thread."""
        self._stop_asked = True
        if self._draining is not None:
            self._draining.asked = True
        backend: object = self._backend
        if isinstance(backend, Wakeable):
            backend.wake()

    def request(self, study: str, request: UserRequest) -> int:
        """Enter what a user asks of a study, to be taken up as soon as the driver looks; return its number."""
        with self._group.first.open_store() as store:
            return store.wishes.make(study, request)

    def view(self) -> RunView | None:
        """Return what there is to see of the run at this moment; None before it begins and when it is over."""
        return None if self._spectator is None else self._spectator.view()

    def _run_apart(self) -> None:
        try:
            self.run(lambda _store, _record, _savings: None)
        except BaseException as error:  # raised again by join
            self._failure = error

    # --- one run ------------------------------------------------------------------------------------------

    def _train(
        self, store: Store, lease: Lease, agreed: AgreedSpec, record: Record, seq: int, stack: ExitStack
    ) -> Savings:
        """Go on from a snapshot that stands at an entry of the journal."""
        group, name, spec = self._group, self._group.name, agreed.spec
        store.states.clean()
        watches = self._follow(record, stack)
        numbers = TrialNumbers(group.names)
        tuners = Tuners([], numbers) if self._only is not None else group.tuners(spec, numbers)
        desk = RequestQueue(store, record, group.shares, spec.root, numbers)
        writer = JournalRecorder(store, lease, record, seq)
        known = max(0, seq - _LEARNED)
        learned = islice(store.journal.read(name, known), seq - known) if seq else ()
        self._estimator.resume(record.plan, (recorded.entry for recorded in learned))
        owed = record.resume(tuners, store.journal.read(name, seq), numbers, [self._estimator.watch])
        surroundings = VariantChoice(store, group, self._options, spec, record)
        surroundings.refuse_changes()
        if agreed.is_changed:
            self._accept(store, spec, record)
        owed += desk.take()
        saving = SavePolicy(every=group.save_every, spares=spec.settings.order == "strict")
        policy = group.policy(self._options.policy, spec)
        settings = named(spec.settings, self._options.policy)
        engine = Engine(settings, policy=policy, state=record.state, saving=saving)
        library = StateIndex(store, name, max(study.keep for study in group.studies))
        if not owed and not record.live and _has_all_states(store, record):
            remove_slots(slots_of(store.folder, name), lease.token)  # a driver killed at the very end leaves them
            desk.close()
            return Savings.count(record.state, units=0, bytes_hopped=0)
        store.catalog.set_status(name, "running")
        warn_of_data(group.first.data)
        self._draining = draining = Draining(engine)
        draining.asked = self._stop_asked
        self._spectator = spectator = self._make_spectator(store)
        configs = to_rehearse(record.trials, owed, group.examples)
        configs = surroundings.comparable_first(configs)
        tried = configs, to_change(record.trials, owed)
        backend = self._backend = self._make_backend(store, lease, record, library, engine, tried, surroundings)
        lost = list(_lost_states(record, backend))
        costs = self._costs()
        own: list[Observer] = [
            self._note_beginning,
            writer.append,
            record.note,
            writer.take_snapshot,
            writer.log_failures,
            NotFiniteMetrics(record, group.goals).note,
            spectator.see,
            self._estimator.watch,
            draining.see,
        ]
        front, sources = backend, self._sources(lease, desk, spectator, draining)
        if not isinstance(backend, PoolBackend):
            front = LedgerBackend(backend, store.states, library)
        if spec.share and spec.settings.order == "strict" and isinstance(backend, PoolBackend):
            resumed = bool(record.by_number)
            claims = store.claims(lease, group.names)
            company = ClaimingBackend(engine, claims, library, resumed=resumed, now=record.now)
            front = company.around(backend)
            own.append(company.note)
            sources.append(Periodic(company.look_around, company.pulse))
        try:
            spectator.begin(engine, self._estimator)
            with self._interruptible(), suppress(StoppedError):
                drive(
                    engine,
                    front,
                    desk.beside(tuners),
                    [*own, *watches],
                    lambda: [DriverStarted(), *lost, *surroundings.settle(backend), *costs, *owed],
                    lambda event: library.look_up(surroundings.placed(event), record.state),
                    lambda: draining.is_over or self._has_ended(record),
                    record.now,
                    sources,
                )
        finally:
            spectator.end()
            self._spectator = None
        writer.write_snapshot()
        if not record.live and self._only is None:
            desk.close()
        return self._savings(record)

    def _accept(self, store: Store, spec: StudySpec, record: Record) -> None:
        """Go on with changed code or data: what failed before is tried again."""
        for study in self._group.names:
            store.wishes.make(study, *retrials_of_failed(record, study))
        store.catalog.set_spec(self._group.name, msgspec.to_builtins(spec))

    def _note_beginning(self, step: Step) -> None:
        self._begun = True

    def _has_ended(self, record: Record) -> bool:
        """Return whether the only trial that is to be trained has ended."""
        if self._only is None:
            return False
        asked = [trial for trial in record.trials if trial.asked_by == (USER, self._only)]
        return any(trial.ending is not None for trial in asked)

    def _take_lease(self, store: Store, stack: ExitStack) -> Lease:
        """Become the driver of the group and of all its members; always in the same order, so nobody is stuck."""
        names = {self._group.name, *self._group.names}
        leases = {name: stack.enter_context(store.lease(name)) for name in sorted(names)}
        own = leases.pop(self._group.name)
        own.take_along(leases.values())
        return own

    def _make_spectator(self, store: Store) -> ProgressReporter:
        group, options = self._group, self._options
        outlooks = {study.name: outlook_of(study.search) for study in group.studies}
        threads = group.first.trainer.threads
        workers = worker_count(options.workers, threads) if options.backend == "local" else options.workers or 0
        asking = BudgetTracker(outlooks)
        return ProgressReporter(options.make_display(), group.goals, workers, store.folder / "logs", asking)

    def _make_backend(
        self,
        store: Store,
        lease: Lease,
        record: Record,
        library: StateIndex,
        engine: Engine,
        tried: tuple[Any, Any],
        surroundings: VariantChoice,
    ) -> Backend:
        options, first = self._options, self._group.first
        chosen = find_backend(options.backend)
        if chosen != "local" and not isinstance(chosen, Ray):
            job = TrainingJob(
                self._group.name,
                first.trainer,
                first.data,
                store.states,
                store.folder,
                first.seed,
                options.workers,
                record.now,
            )
            return chosen.open(job)
        pool = make_pool(
            chosen,
            options.workers,
            first.trainer,
            first.data,
            store.states,
            store.folder,
            self._group.name,
            lease.token,
            options.heartbeat_limit,
        )
        goals = [goal.metric for goal in self._group.goals.values()]
        spectator = self._spectator

        def tick() -> None:
            lease.renew()  # nobody else does while workers start
            if spectator is not None:
                spectator.tick()

        return PoolBackend(
            pool,
            store.states,
            seed=first.seed,
            ledger=library,
            rehearsals=Rehearsals(tried[0], goals, surroundings.variants.probed, tried[1]) if tried[0] else None,
            options=PoolOptions(record.now, options.unit_limit, options.heartbeat_limit, wait_for_platforms=True),
            hooks=PoolHooks(
                longest=self._estimator.longest,
                tick=tick,
                workers_needed=lambda: 0 if self._stop_asked else max(1, engine.plan.lineages),
                observed=surroundings.variants.observed,
            ),
        )

    def _sources(
        self, lease: Lease, desk: RequestQueue, spectator: ProgressReporter, draining: Draining
    ) -> list[EventSource]:
        def alive() -> Sequence[Event]:
            lease.renew()
            return ()

        def obey() -> Sequence[Event]:
            if not draining.asked and lease.is_asked_to_stop():
                log.warning("stopping, as somebody asked, when the units that run are done")
                self.stop()
            return ()

        def tick() -> Sequence[Event]:
            spectator.tick()
            return ()

        return [
            draining,
            Periodic(alive, lambda: _LOOK),
            Periodic(obey, lambda: _OBEY),
            Periodic(desk.take, lambda: _LOOK),
            Periodic(self._costs, lambda: _LOOK),
            Periodic(tick, lambda: _TICK),
        ]

    def _costs(self) -> list[Event]:
        costs = self._estimator.news()
        return [] if costs is None else [costs]

    def _savings(self, record: Record) -> Savings:
        backend: object = self._backend
        if not isinstance(backend, ReportsTraffic):
            return Savings.count(record.state, units=record.state.units, bytes_hopped=0)
        return Savings.count(
            record.state,
            backend.units,
            backend.bytes_hopped,
            backend.state_bytes,
            backend.bytes_between_nodes,
            backend.made,
        )

    # --- Ctrl-C -------------------------------------------------------------------------------------------

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C stop the run; the handler of the embedding program is put back afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, *_: object) -> None:
        if self._stop_asked:
            raise KeyboardInterrupt
        self.stop()
        if self._draining is None or not self._draining.has_workers:
            raise StoppedError("stopped as asked, before anything was trained")
        log.warning("stopping when the units that run are done; interrupt again to stop at once")


def _has_all_states(store: Store, record: Record) -> bool:
    """Return whether the store has every state that the study needs."""
    if any(trial.lost_state and trial.onward is None for trial in record.trials):
        return False
    nodes = record.plan.nodes
    return all(state.key in store.states for node in nodes for state in node.states.values())


def _lost_states(record: Record, backend: Backend) -> Iterator[Event]:
    """Tell which states have not outlived the last driver."""
    for node in record.plan.nodes:
        for state in list(node.states.values()):
            if not isinstance(backend, FindsStates) or not backend.adopt(node.id, state.unit, state.key):
                yield StateLost(node.id, state.unit)
