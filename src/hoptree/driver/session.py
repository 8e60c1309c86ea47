"""A session: one driver's time with a study. The journal is folded, then the rest is driven and recorded."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, final

from hoptree.backends.local import remove_slots, slots_of
from hoptree.backends.member import Pool
from hoptree.backends.pool import HEARTBEAT, DrainedError, PoolBackend
from hoptree.core.actions import Action, EndTrial
from hoptree.core.events import Event, StateLost, TrialAsked, WorkerLost
from hoptree.core.lineage import beginning
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config, Scalar
from hoptree.drive import Asks, Watch, drive, without_collector
from hoptree.driver.company import Company
from hoptree.driver.desk import Desk
from hoptree.driver.library import Library
from hoptree.driver.wishing import shown_number
from hoptree.estimate import Estimator
from hoptree.progress import Spectator
from hoptree.record.record import Record
from hoptree.results import Savings
from hoptree.store.logs import Logs

if TYPE_CHECKING:
    from hoptree.backends.protocol import Backend
    from hoptree.store import Lease, Store
    from hoptree.store.claims import Claims

_TRIED = 12  # of each kind of configs, of which one has to pass rehearsal


@final
class Session:
    """Brings a study from where its journal ends to where no trial is left."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        record: Record,
        tuner: Asks,
        library: Library,
        desk: Desk,
        spectator: Spectator,
        claims: Claims | None = None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._tuner = tuner
        self._library = library
        self._desk = desk
        self._spectator = spectator
        self._logs = Logs(store.folder / "logs")
        self.record = record
        self._estimator = Estimator()
        self._backend: PoolBackend | None = None
        self._claims = claims  # None: nothing can be shared with other drivers
        self._company: Company | None = None

    def run(
        self,
        pool: Callable[[], Pool],
        *,
        goals: list[str],
        examples: Callable[[], Sequence[Config]],
        seed: int,
        unit_limit: float | None,
        watches: Sequence[Watch] = (),
        save_every: int = 0,
        enough: Callable[[], bool] = lambda: False,
    ) -> Savings:
        """Train what is missing, on a pool that is made if anything is.

        An interrupt lets what runs end, and the study goes on another time. ``examples`` are configs that the
        searches may come to. ``watches`` see every event after the record has taken it in.
        """
        self._store.states.clean()
        owed = [*self._fold(), *self._desk.take()]
        engine = self.record.engine
        if not owed and not engine.live:
            # a driver killed at the very end leaves them
            remove_slots(slots_of(self._store.folder, self._lease.study), all_of_them=True)
        else:
            backend = self._backend = PoolBackend(
                pool(),
                self._store.states,
                engine.plan,
                seed=seed,
                books=self._library,
                begun=self.record.now,
                rehearsal=(configs, goals)
                if (configs := to_rehearse(self.record.trials, owed, examples))
                else None,
                unit_limit=unit_limit,
                longest=self._estimator.longest,
                alive=self._look_around,
                tick=self._spectator.tick,
                pulse=self._pulse,
                save_every=save_every,
                spares=self.record.engine.settings.order == "strict",
            )
            first = [*self._reconcile(backend), *self._costs(), *owed]
            own = [
                self._save,
                self._append,
                self.record.note,
                self._log,
                self._spectator.see,
                self._estimator.watch,
            ]
            front: Backend = backend
            if self._claims is not None:
                resumed = bool(engine.trials)
                company = self._company = Company(engine, self._claims, self._library, resumed=resumed)
                front = company.around(backend)
                first = [*company.forget(), *first]
                own.append(company.note)
            try:
                self._spectator.begin(engine, self.record.curves, self._estimator)
                with suppress(DrainedError), without_collector():
                    asks, seen = self._desk.beside(self._tuner), [*own, *watches]
                    drive(engine, front, asks, seen, first, self._look_up, enough, self.record.now)
            finally:
                self._spectator.end()
        if not engine.live and not enough():
            self._desk.close()
        return self._savings()

    # --- going on ---------------------------------------------------------------------------------------

    def _fold(self) -> list[Event]:
        """Rebuild engine and search from the journal; return what the search asked for and is not in it."""
        entries = self._store.journal.read(self._lease.study)
        return self.record.resume(self._tuner, entries, [self._estimator.watch])

    def _reconcile(self, backend: PoolBackend) -> Iterator[Event]:
        """Tell the engine what has not outlived the last driver: its workers, and states that are nowhere."""
        engine = self.record.engine
        for name in list(engine.workers.by_name):
            yield WorkerLost(name)
        for node in engine.plan.nodes:
            for state in list(node.states.values()):
                if not backend.adopt(state):
                    yield StateLost(node.id, state.unit)

    # --- while it runs ----------------------------------------------------------------------------------

    def _look_around(self) -> list[Event]:
        """Give a sign of life, and see what is wished for, what others have trained, and what costs are by now."""
        self._lease.renew()
        gc.collect(1)
        heard = self._company.look_around() if self._company is not None else []
        return [*heard, *self._desk.take(), *self._costs()]

    def _pulse(self) -> float:
        return HEARTBEAT if self._company is None else self._company.pulse()

    def _costs(self) -> list[Event]:
        costs = self._estimator.news()
        return [] if costs is None else [costs]

    def _look_up(self, event: Event) -> Event:
        return self._library.look_up(event, self.record.engine)

    def _save(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        """Have the states that trials ended with saved, behind; one that is lost before is trained again."""
        assert self._backend is not None
        for action in actions:
            if isinstance(action, EndTrial) and action.ending == "complete":
                final = self.record.engine.trials[action.trial].final
                assert final is not None
                if final.unit in final.node.states:
                    self._backend.save(final.node.id, final.unit)

    def _append(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        ends = any(isinstance(action, EndTrial) for action in actions)
        self._store.journal.append(
            self._lease.study,
            [(now, more, event)],
            token=self._lease.token,
            durable=ends,
            reports=self._library.reports(event, actions, self.record.engine),
        )

    def _log(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        """Write what a trial failed of to a file, whole: messages are short and name it."""
        for action in actions:
            if isinstance(action, EndTrial) and action.ending == "failed":
                trial = self.record.engine.trials[action.trial]
                number = shown_number(self.record, trial)
                self._logs.write(self._logs.of_trial(trial.study, number), failure_text(trial, number))

    # --- what came of it --------------------------------------------------------------------------------

    def _savings(self) -> Savings:
        backend = self._backend
        if backend is None:
            return Savings.count(self.record.engine, units=0, bytes_hopped=0)
        return Savings.count(
            self.record.engine,
            backend.units,
            backend.bytes_hopped,
            backend.state_bytes,
            backend.bytes_between_nodes,
            backend.made,
        )


def failure_text(trial: Trial, number: int) -> str:
    """Return all that is known of a failed trial."""
    config = "\n".join(f"  {name}: {value}" for name, value in dict(trial.history[-1].config).items())
    return f"trial {number} of {trial.study}\nreported epochs: {trial.reached}\nconfig:\n{config}\n\n{trial.reason}"


def to_rehearse(
    trials: Sequence[Trial], owed: Sequence[Event], examples: Callable[[], Sequence[Config]]
) -> list[dict[str, Scalar]]:
    """Return the values of which some must pass rehearsal; nothing if nothing begins.

    Those that begin come first. That some of them fail is data, so what has been trained before, and what the
    searches may still ask for, has its chance too: only what no config survives is a mistake in all of them.
    """
    begin = [dict(trial.history[0].config) for trial in trials if trial.ending is None]
    begin += [dict(event.config) for event in owed if isinstance(event, TrialAsked)]
    if not begin:
        return []
    before = [dict(trial.history[0].config) for trial in trials if trial.reached]
    found: list[dict[str, Scalar]] = []
    for config in (config for kind in (begin, before, examples()) for config in _spread(kind)):
        if (values := beginning(config)) not in found:
            found.append(values)
    return found


def _spread(configs: Sequence[Config]) -> Sequence[Config]:
    """Return some from all over, if there are many."""
    return configs[:: max(1, len(configs) // _TRIED)][:_TRIED]
