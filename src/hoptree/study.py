"""The study: the composition root that turns typed settings into objects and lets them run."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.core.errors import StudyChangedError, WorkloadError
from hoptree.core.lineage import digest
from hoptree.core.settings import Order, Settings
from hoptree.library import Library
from hoptree.record import Record
from hoptree.results import Results, Savings, TrialResult
from hoptree.search.protocol import Goal, Procedure
from hoptree.search.space import Space, changes, describe
from hoptree.search.tuner import Tuner
from hoptree.session import Session
from hoptree.solo import Soloist
from hoptree.store.ledger import parse_size

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store import Store
    from hoptree.trainers.base import Trainer

_ACCEPTABLE = ("trainer", "data")  # what may change when the user says so; the rest is what the study is


class Verification(msgspec.Struct, frozen=True):
    """A trial trained again, alone: its fingerprint then ("" if what was stored is gone or damaged) and now."""

    trial: int
    stored: str
    trained: str

    @property
    def holds(self) -> bool:
        """Whether the same bits came out."""
        return self.stored == self.trained


@final
class Study:
    """One model-selection job: trainer, dataset, space, search, goal.

    ``store`` is the folder of states and journal; ``journal`` the URL of a PostgreSQL database that holds the
    journal instead. States that no study needs are kept while the store's states take less than ``keep``.
    """

    def __init__(
        self,
        name: str,
        *,
        trainer: Trainer,
        data: Dataset,
        space: Space,
        search: Procedure,
        maximize: str | None = None,
        minimize: str | None = None,
        seed: int = 0,
        store: str | Path = ".hoptree",
        journal: str | None = None,
        order: Order = "strict",
        share: bool = True,
        keep: str | int = "10 GB",
    ) -> None:
        if (maximize is None) == (minimize is None):
            raise WorkloadError(
                f"maximize={maximize!r}, minimize={minimize!r}; expected exactly one: a direction is never guessed"
            )
        if not name or "/" in name:
            raise WorkloadError(f"name: {name!r}; expected a non-empty name without '/'")
        self.name = name
        file = sys._getframe(1).f_code.co_filename  # of whoever defines the study
        self._program = str(Path(file).absolute()) if Path(file).is_file() else ""
        self._trainer = trainer
        self._data = data
        self._space = space
        self._search = search
        self._goal = Goal(maximize or minimize or "", maximize is not None)
        self._seed = seed
        self._store = Path(store)
        self._journal = journal
        self._share = share
        self._keep = parse_size(keep)
        self._settings = Settings(data.partitions, order, retries=0)  # units are pure: what raised raises again
        search.search(space, self._goal, seed)  # refuses what cannot be searched, before anything runs

    def run(
        self, workers: int | None = None, *, accept_changes: bool = False, unit_limit: float | None = None
    ) -> Results:
        """Train what is missing, and return what was found; a finished study trains nothing.

        ``workers`` defaults to cores over the trainer's threads. Code or data that differ from what the store
        holds under this name are refused, unless ``accept_changes``. ``unit_limit`` are the seconds after which
        a unit is taken for hung and its trial fails (by default 20 times the longest so far, and 10 minutes).
        """
        count = max(1, (os.cpu_count() or 1) // self._trainer.threads) if workers is None else workers
        if count < 1:
            raise WorkloadError(f"workers: {workers}; expected at least 1")
        if unit_limit is not None and not 0 < unit_limit < math.inf:
            raise WorkloadError(f"unit_limit: {unit_limit}; expected seconds above 0")
        with self._open() as store, store.lease(self.name) as lease:
            self._data.check()
            spec = self._agree(store, accept_changes)
            record = Record(spec.settings)
            search = self._search.search(self._space, self._goal, self._seed)
            tuner = Tuner(search, study=self.name, root=spec.root, share=self._share)
            session = Session(store, lease, record, tuner, Library(store, self.name, self._keep))
            store.catalog.set_status(self.name, "running")
            try:
                savings = session.run(
                    self._trainer,
                    self._data,
                    goal=self._goal.metric,
                    seed=self._seed,
                    workers=count,
                    unit_limit=unit_limit,
                )
            except Exception:
                store.catalog.set_status(self.name, "failed" if record.engine.trials else "created")
                raise
            store.catalog.set_status(self.name, "stopped" if record.engine.live else "finished")
            return self._results(store, record, savings)

    def results(self) -> Results:
        """Return what the store holds of this study, without training anything."""
        with self._open(create=False) as store:
            record = self._recorded(store)
            return self._results(store, record, Savings.count(record.engine, units=0, bytes_hopped=0))

    def verify(self, trial: int | None = None) -> list[Verification]:
        """Train complete trials (or one) again, each alone in this process, and compare fingerprints."""
        from hoptree.store import StateDamagedError, StateMissingError, fingerprint

        found: list[Verification] = []
        with self._open(create=False) as store:
            self._data.check()
            record = self._recorded(store)
            soloist = self._soloist(record)
            numbers = [t.number for t in record.trials if t.ending == "complete"] if trial is None else [trial]
            for number in numbers:
                known = record.engine.trials.get(number)
                if known is None or known.ending != "complete":
                    state = "not known" if known is None else known.ending or "running"
                    raise WorkloadError(f"trial {number} of {self.name!r}: it is {state}; expected a complete one")
                place = record.place(known)
                assert place is not None
                try:
                    stored = fingerprint(store.states.get(place.node.state_key(place.unit))[0])
                except (StateMissingError, StateDamagedError):
                    stored = ""
                found.append(Verification(number, stored, fingerprint(soloist.train(known)[1].arrays)))
        return found

    @property
    def store(self) -> Path:
        """The folder in which it keeps its states."""
        return self._store.absolute()

    def keep_in(self, store: str | Path, journal: str | None = None) -> None:
        """Use another store than the one that the program names."""
        self._store, self._journal = Path(store), journal

    # --- what the store knows ---------------------------------------------------------------------------

    def _open(self, create: bool = True) -> Store:
        from hoptree.store import Store

        return Store(self._store, create, journal_url=self._journal)

    def _agree(self, store: Store, accept: bool) -> StudySpec:
        """Return what the study is made of, after comparing it with what the store holds under its name."""
        spec = self.spec
        known = store.catalog.find(self.name)
        if known is None:
            store.catalog.register(self.name, msgspec.to_builtins(spec))
            return spec
        if not store.journal.last(self.name):  # nothing came of it before: it may be anything
            store.catalog.set_spec(self.name, msgspec.to_builtins(spec))
            return spec
        before = StudySpec.read(known.spec)
        changed = [field for field in StudySpec.compared if getattr(before, field) != getattr(spec, field)]
        refused = [field for field in changed if field not in _ACCEPTABLE]
        refused += changes(before.space, spec.space)
        if before.settings.partitions != spec.settings.partitions:
            refused.append(f"partitions (from {before.settings.partitions} to {spec.settings.partitions})")
        if refused:
            raise StudyChangedError(
                f"study {self.name!r} is another than the one that was begun ({'; '.join(refused)}); give it "
                "another name: what both have in common is found in the store"
            )
        if changed and not accept:
            raise StudyChangedError(
                f"study {self.name!r}: {', '.join(changed)} changed since it was begun; give it another name, or "
                "say run(accept_changes=True), or --accept-changes, to go on as if nothing had changed"
            )
        agreed = msgspec.structs.replace(spec, root=before.root, settings=before.settings)
        store.catalog.set_spec(self.name, msgspec.to_builtins(agreed))
        return agreed

    def _recorded(self, store: Store) -> Record:
        from hoptree.store import StudyMissingError

        known = store.catalog.find(self.name)
        if known is None:
            raise StudyMissingError(f"{self.name}: no such study in {self._store}; run it first")
        record = Record(StudySpec.read(known.spec).settings)
        for _ in record.replay(store.journal.read(self.name)):
            pass
        return record

    def _results(self, store: Store, record: Record, savings: Savings) -> Results:
        soloist = self._soloist(record)
        trials = [TrialResult(trial, record, store.states, soloist) for trial in record.trials]
        return Results(trials, self._goal, savings)

    def _soloist(self, record: Record) -> Soloist:
        return Soloist(record, self._trainer, self._data, self._seed)

    @property
    def spec(self) -> StudySpec:
        """What the study is made of, as the catalog keeps it."""
        return StudySpec(
            trainer=self._trainer.fingerprint,
            data=self._data.fingerprint,
            space=describe(self._space),
            search=repr(self._search),
            goal=self._goal,
            seed=self._seed,
            share=self._share,
            settings=self._settings,
            root=digest(self._trainer.fingerprint, self._data.fingerprint, self._seed),
            program=self._program,
        )


class StudySpec(msgspec.Struct, frozen=True):
    """What a study is made of, as the catalog keeps it.

    ``root`` stands for all that lineages start from: code, data and seed. ``program`` is the file that defined
    the study, for commands that need its code.
    """

    trainer: str
    data: str
    space: dict[str, Any]
    search: str
    goal: Goal
    seed: int
    share: bool
    settings: Settings
    root: str
    program: str

    compared = ("trainer", "data", "search", "goal", "seed", "share")

    @classmethod
    def read(cls, spec: dict[str, Any]) -> StudySpec:
        """Return a spec as the catalog gives it back."""
        from hoptree.store import StoreVersionError

        try:
            return msgspec.convert(spec, cls)
        except msgspec.ValidationError as error:
            raise StoreVersionError(
                f"study: the catalog describes it in a way that this Hoptree does not read ({error}); use the "
                "Hoptree that ran it, or another name"
            ) from None
