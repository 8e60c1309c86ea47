"""A group: studies that are driven together, by one engine, with one journal and one pool of workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.backends.choice import Where, check_backend, make_pool, worker_count
from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.drive import Watch
from hoptree.driver.desk import WISHED, Desk
from hoptree.driver.library import Library
from hoptree.driver.session import Session, to_rehearse
from hoptree.error_look import in_one_look
from hoptree.progress import Asking, Spectator, choose_display
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec, agree, refuse_changes, refuse_others
from hoptree.results import Results, Savings
from hoptree.search.outlook import outlook_of
from hoptree.search.sampling import some_configs
from hoptree.search.tuner import Tuner, Tuners

if TYPE_CHECKING:
    from hoptree.backends.member import Pool
    from hoptree.core.schedules import Config
    from hoptree.forecast.forecast import Forecast
    from hoptree.forecast.measured import Measured
    from hoptree.mirror import WandB
    from hoptree.store import Lease, Store
    from hoptree.store.journal import Recorded
    from hoptree.study import Study

_READ = 200_000  # events of another study up to which its journal is read for what can be learned from it
_EXAMPLES = 12  # configs of a study's space that are tried if those that begin fail
_ALIKE = ("trainer", "data", "seed", "share", "settings")  # what lineages start from, and how they are trained


def run(
    studies: Sequence[Study],
    workers: int | None = None,
    *,
    backend: Where = "local",
    accept_changes: bool = False,
    unit_limit: float | None = None,
    mirror: str | WandB | None = None,
    quiet: bool = False,
) -> list[Results]:
    """Train several studies at once, and return the results of each.

    What they have in common is trained once. They must have trainer, data, seed and store in common, and may
    differ in space, search and goal. The savings are those of all of them together. ``mirror`` follows
    each of them, see ``Study.mirror``.
    """
    group = Group(_checked(studies))
    return group.run(
        workers, backend=backend, accept_changes=accept_changes, unit_limit=unit_limit, mirror=mirror, quiet=quiet
    )


def _checked(studies: object) -> list[Study]:
    from hoptree.study import Study

    if isinstance(studies, Sequence) and all(isinstance(study, Study) for study in studies):
        return list(studies)
    raise WorkloadError(f"studies: {studies!r}; expected a list of studies, as run([a, b])")


@final
class Group:
    """One study, or several that have in common what lineages start from."""

    def __init__(self, studies: Sequence[Study]) -> None:
        if not studies:
            raise WorkloadError("studies: none given; expected at least one")
        self._studies = list(studies)
        self._first = studies[0]
        names = [study.name for study in studies]
        self.name = "+".join(names)
        if len(set(names)) < len(names):
            raise WorkloadError(f"studies: the names {names} are not all different; give each its own")
        for study in studies[1:]:
            if study.store != self._first.store:
                raise WorkloadError(
                    f"studies: {study.name!r} is kept in {study.store}, {names[0]!r} in {self._first.store}; "
                    "expected one store for all"
                )
            for field in _ALIKE:
                if getattr(study.spec, field) != getattr(self._first.spec, field):
                    raise WorkloadError(
                        f"studies: {study.name!r} has another {field} than {names[0]!r}, so they have nothing to "
                        "share; run them one after the other"
                    )

    def run(
        self,
        workers: int | None,
        *,
        backend: Where = "local",
        accept_changes: bool,
        unit_limit: float | None,
        mirror: str | WandB | None = None,
        quiet: bool = False,
    ) -> list[Results]:
        """Train what is missing; see ``Study.run``."""
        check_backend(backend, workers)
        number = isinstance(unit_limit, int | float) and not isinstance(unit_limit, bool)
        if unit_limit is not None and not (number and 0 < unit_limit < math.inf):
            raise WorkloadError(f"unit_limit: {unit_limit!r}; expected seconds above 0")
        with ExitStack() as stack:
            stack.enter_context(in_one_look(self._first.store))
            store, lease = self._drive(stack)
            before = store.catalog.find(self.name)
            spec = agree(store, self.name, self._specs(), accept_changes)
            threads = self._first.trainer.threads
            count = worker_count(workers, threads) if backend == "local" else workers or 0
            session = self._session(store, lease, spec, self._tuners(spec.root), count, quiet=quiet)
            record = session.record
            try:
                watches = self._mirrors(mirror, record, stack) if mirror is not None else []
                store.catalog.set_status(self.name, "running")
                savings = self._run(session, self._pool(store, backend, workers), unit_limit, watches)
            except Exception:
                if record.engine.trials:
                    store.catalog.set_status(self.name, "failed")
                elif before is not None:  # it was refused before anything was looked at: it is what it was
                    store.catalog.set_status(self.name, before.status)
                else:
                    store.catalog.withdraw(self.name)  # it was refused: there is no study that others should see
                raise
            store.catalog.set_status(self.name, "stopped" if record.engine.live else "finished")
            return [study.outcome(store, record, savings) for study in self._studies]

    def grant(self, trial: int, workers: int | None, backend: Where) -> None:
        """Train one trial that was wished for until it ends, whatever searches would ask for next."""
        check_backend(backend, workers)
        with ExitStack() as stack:
            store, lease = self._drive(stack)
            spec = agree(store, self.name, self._specs(), False)
            known = store.catalog.find(self.name)
            session = self._session(store, lease, spec, Tuners([], end=0), workers or 0, quiet=True)
            engine = session.record.engine
            pool = self._pool(store, backend, workers)
            try:
                self._run(
                    session, pool, None, (), lambda: trial in engine.trials and bool(engine.trials[trial].ending)
                )
            finally:
                over = known is not None and known.status in ("finished", "failed") and not engine.live
                store.catalog.set_status(self.name, known.status if over and known is not None else "stopped")

    def _drive(self, stack: ExitStack) -> tuple[Store, Lease]:
        store = stack.enter_context(self._first.open_store())
        lease = self._lease(store, stack)
        self._first.data.check()
        return store, lease

    def _session(
        self, store: Store, lease: Lease, spec: StudySpec, tuners: Tuners, workers: int, *, quiet: bool
    ) -> Session:
        goals = {study.name: study.goal for study in self._studies}
        asking = Asking({study.name: outlook_of(study.search) for study in self._studies}, end=WISHED)
        spectator = Spectator(choose_display(quiet), goals, workers, store.folder / "logs", asking)
        record = Record(spec.settings)
        desk = Desk(store, record, [(study.name, study.share) for study in self._studies], spec.root)
        library = Library(store, self.name, max(study.keep for study in self._studies))
        shares = spec.share and spec.settings.order == "strict"
        claims = store.claims(lease, (study.name for study in self._studies)) if shares else None
        return Session(store, lease, record, tuners, library, desk, spectator, claims)

    def _pool(self, store: Store, backend: Where, workers: int | None) -> Callable[[], Pool]:
        trainer, data = self._first.trainer, self._first.data
        return partial(make_pool, backend, workers, trainer, data, store.states, store.folder, self.name)

    def _run(
        self,
        session: Session,
        pool: Callable[[], Pool],
        unit_limit: float | None,
        watches: Sequence[Watch],
        enough: Callable[[], bool] = lambda: False,
    ) -> Savings:
        return session.run(
            pool,
            goals=[study.goal.metric for study in self._studies],
            examples=self._examples,
            seed=self._first.seed,
            unit_limit=unit_limit,
            watches=watches,
            save_every=min((study.save_every for study in self._studies if study.save_every), default=0),
            enough=enough,
        )

    def _examples(self) -> list[Config]:
        """Return configs that the searches may come to, of every study in turn."""
        found = [some_configs(study.space, study.seed, _EXAMPLES) for study in self._studies]
        return [config for kind in zip_longest(*found) for config in kind if config is not None]

    def _mirrors(self, where: str | WandB, record: Record, stack: ExitStack) -> list[Watch]:
        """Have every study followed; a mirror that cannot be opened is refused here."""
        from hoptree.mirror import LiveMirror

        return [
            stack.enter_context(LiveMirror(study.open_mirror(where), record, study.name)).watch
            for study in self._studies
        ]

    def explain(self, workers: int | None, *, accept_changes: bool = False) -> Forecast:
        """Return what is left to train, and what that takes; see ``Study.explain``."""
        from hoptree.forecast.explanation import Explainer, Told
        from hoptree.forecast.measured import Measured
        from hoptree.store import StoreMissingError

        specs = self._specs()
        count, spec = worker_count(workers, self._first.trainer.threads), StudySpec.together(specs)
        measured = Measured()
        with ExitStack() as stack:
            stack.enter_context(in_one_look(self._first.store))
            store: Store | None = None
            journal: list[Recorded] = []
            with suppress(StoreMissingError):
                store = stack.enter_context(self._first.open_store(create=False))
                refuse_others(store, self.name, specs, accept_changes)
                spec, journal = self._look_back(store, spec, measured, accept_changes)
            if not journal:
                self._rehearse(spec)
            studies = [(study.name, study.share) for study in self._studies]
            goal = self._first.goal.metric
            told = Told(spec.settings, goal, journal, store, self.name, studies, spec.root)
            measured.try_out(self._first.trainer, self._first.data, self._tuners(spec.root).start())
            threads = self._first.trainer.threads
            return Explainer(told, lambda: self._tuners(spec.root), measured, threads=threads).explain(count)

    def _rehearse(self, spec: StudySpec) -> None:
        """Refuse what a run would refuse."""
        from hoptree.backends.pool import check_rehearsal
        from hoptree.worker.runner import rehearse_some

        data, configs = self._first.data, to_rehearse([], self._tuners(spec.root).start(), self._examples)
        if configs:
            found = rehearse_some(self._first.trainer, configs, lambda: data.partition(0), data.valid())
            check_rehearsal([study.goal.metric for study in self._studies], found)

    def _look_back(
        self, store: Store, spec: StudySpec, measured: Measured, accept_changes: bool
    ) -> tuple[StudySpec, list[Recorded]]:
        """Learn from what the store tells of this study, and of others with the same trainer and data."""
        journal: list[Recorded] = []
        for known in store.catalog.all():
            try:
                other = StudySpec.read(known.spec)
            except HoptreeError:
                continue  # of another version: it has nothing to say
            own = known.name == self.name and bool(store.journal.last(known.name))
            if own:
                refuse_changes(self.name, other, spec, accept_changes)
            alike = own or (other.trainer, other.data) == (spec.trainer, spec.data)
            if not alike or (not own and store.journal.last(known.name) > _READ):
                continue
            entries = list(store.journal.read(known.name))
            with nullcontext() if own else suppress(HoptreeError):  # others' troubles are not ours
                measured.learn(other.settings, entries, store, own=own)
            if own:
                journal = entries
                spec = msgspec.structs.replace(spec, root=other.root, settings=other.settings)
        return spec, journal

    def _lease(self, store: Store, stack: ExitStack) -> Lease:
        """Become the driver of the group and of all its members; always in the same order, so nobody is stuck."""
        names = {self.name, *(study.name for study in self._studies)}
        leases = {name: stack.enter_context(store.lease(name)) for name in sorted(names)}
        own = leases.pop(self.name)
        own.take_along(leases.values())
        return own

    def _tuners(self, root: str) -> Tuners:
        searches = [(study, search) for study in self._studies for search in study.searches()]
        return Tuners(
            [
                Tuner(
                    search,
                    study=study.name,
                    root=root,
                    first=number,
                    step=len(searches),
                    share=study.share,
                )
                for number, (study, search) in enumerate(searches)
            ],
            end=WISHED,
        )

    def _specs(self) -> dict[str, StudySpec]:
        return {study.name: study.spec for study in self._studies}
