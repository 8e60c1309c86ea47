"""A session: one driver's time with a study. The journal is folded, then the rest is driven and recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, final

from hoptree.backends.local import DrainedError, LocalBackend
from hoptree.core.actions import Action, EndTrial, Report
from hoptree.core.engine import Engine
from hoptree.core.events import Event, Metrics, StateLost, WorkerLost
from hoptree.core.lineage import digest, seed_of
from hoptree.core.plan import Place, Trial
from hoptree.core.settings import Settings
from hoptree.drive import drive
from hoptree.results import Savings, TrialResult
from hoptree.search.protocol import Search
from hoptree.search.tuner import Tuner

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store import Lease, Store
    from hoptree.trainers.base import Trainer


@final
class Session:
    """Brings a study from where its journal ends to where no trial is left."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        trainer: Trainer,
        data: Dataset,
        search: Search,
        settings: Settings,
        root: str,
        seed: int,
        share: bool,
    ) -> None:
        self._store = store
        self._lease = lease
        self._trainer = trainer
        self._data = data
        self._seed = seed
        self._engine = Engine(settings)
        self._tuner = Tuner(search, study=lease.study, root=root, share=share)
        self._curves: dict[int, dict[int, Metrics]] = {}
        self._begun = 0.0
        self._backend: LocalBackend | None = None

    def run(self, workers: int) -> Savings:
        """Train what is missing; an interrupt lets what runs end, and the study goes on another time."""
        owed = self._fold()
        slots = slots_of(self._store.folder, self._lease.study)
        if not owed and not self._engine.live:
            shutil.rmtree(slots, ignore_errors=True)  # a driver killed at the very end leaves them
        else:
            backend = self._backend = LocalBackend(
                self._trainer,
                self._data,
                self._store.states,
                self._engine.plan,
                workers=workers,
                seed=self._seed,
                slots=slots,
                begun=self._begun,
            )
            first = [*self._reconcile(backend), *owed]
            with suppress(DrainedError):
                drive(self._engine, backend, self._tuner, [self._save, self._record], first)
        return self._savings()

    def trials(self) -> list[TrialResult]:
        """Return every trial as it stands."""
        return [self._result(trial) for trial in self._engine.trials.values()]

    # --- going on ---------------------------------------------------------------------------------------

    def _fold(self) -> list[Event]:
        """Rebuild engine and search from the journal; return what the search asked for and is not in it."""
        owed = self._tuner.start()
        for entry in self._store.journal.read(self._lease.study):
            self._begun = entry.now
            if owed and entry.event == owed[0]:
                owed.pop(0)
            for action in self._engine.step(entry.event, entry.now, more=entry.more):
                if isinstance(action, Report | EndTrial):
                    self._note(action)
                    owed.extend(self._tuner.tell(action))
        return owed

    def _reconcile(self, backend: LocalBackend) -> Iterator[Event]:
        """Tell the engine what has not outlived the last driver: its workers, and states that are nowhere."""
        for name in list(self._engine.workers.by_name):
            yield WorkerLost(name)
        for node in self._engine.plan.nodes:
            for state in list(node.states.values()):
                if not backend.adopt(node.id, state.unit, state.key):
                    yield StateLost(node.id, state.unit)

    # --- while it runs ----------------------------------------------------------------------------------

    def _save(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        """Make the states that trials ended with durable, before the journal says that they ended."""
        assert self._backend is not None
        for action in actions:
            if isinstance(action, EndTrial) and action.ending == "complete":
                node, unit = self._final(action.trial)
                if unit in node.states:
                    self._backend.save(node.id, unit)

    def _record(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        ends = any(isinstance(action, EndTrial) for action in actions)
        entry = (now, more, event)
        self._store.journal.append(self._lease.study, [entry], token=self._lease.token, durable=ends)
        for action in actions:
            if isinstance(action, Report | EndTrial):
                self._note(action)

    def _note(self, news: Report | EndTrial) -> None:
        if isinstance(news, Report):
            self._curves.setdefault(news.trial, {})[news.epoch] = dict(news.metrics)

    # --- what came of it --------------------------------------------------------------------------------

    def _savings(self) -> Savings:
        partitions = self._engine.settings.partitions
        work = self._engine.plan.work(self._engine.trials.values())
        trained = self._backend.units if self._backend is not None else 0
        return Savings(
            epochs_asked=work.asked / partitions,
            epochs_trained=trained / partitions,
            epochs_shared=(work.asked - work.unique) / partitions,
            epochs_reused=max(0, work.unique - trained) / partitions,
            merge_rate=work.merge_rate,
            bytes_hopped=self._backend.bytes_hopped if self._backend is not None else 0,
        )

    def _result(self, trial: Trial) -> TrialResult:
        config = dict(trial.history[-1].config)
        state = trial.ending or "running"
        curve = self._curves.get(trial.number, {})
        store, trainer = self._store.states, self._trainer
        key, initial, seed = "", {}, 0
        if trial.final is not None:
            node, unit = trial.final
            key = digest(node.key, unit)
            origin = node.origin
            initial, seed = origin.values.at(0.0), seed_of(origin.key, "build")

        def fingerprint() -> str:
            from hoptree.store import fingerprint as of_arrays

            return of_arrays(store.get(key)[0])

        def load() -> Any:
            from hoptree.trainers.base import ModelState

            model = trainer.build(initial, seed)
            trainer.load(model, ModelState(*store.get(key)))
            return trainer.export(model)

        return TrialResult(trial.number, config, state, curve, trial.reason, fingerprint, load)

    def _final(self, number: int) -> Place:
        final = self._engine.trials[number].final
        assert final is not None
        return final


def slots_of(store: Path, study: str) -> Path:
    """Return the folder of a study's slots, the same for every driver, so that a killed one's states are found."""
    memory = Path("/dev/shm")  # noqa: S108 the name is ours alone by user, store and study
    home = memory if memory.is_dir() else Path(gettempdir())
    return home / f"hoptree-{os.getuid()}-{digest(store, study)}"
