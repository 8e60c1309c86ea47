"""Studies that run together, by one driver: what users call, and what would come of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, final

from hoptree.backends.choice import Where, worker_count
from hoptree.backends.event_loop import Observer
from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.driver.driver import Driver
from hoptree.driver.options import RunOptions
from hoptree.driver.rehearsal_configs import to_change, to_rehearse
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.variant_choice import NEW, changed, expected_variant
from hoptree.driver.variants import Variants
from hoptree.record.error_format import in_one_look
from hoptree.record.record import Record
from hoptree.record.results import Results
from hoptree.record.spec import StudySpec, continued, refuse_changes, refuse_others

if TYPE_CHECKING:
    from hoptree.forecast.forecast import Forecast
    from hoptree.forecast.measured import Measured
    from hoptree.mirror import WandB
    from hoptree.store import Store
    from hoptree.store.journal import Recorded
    from hoptree.study.study import Study

_READ = 200_000  # events of another study up to which its journal is read for what can be learned from it


def run(studies: Sequence[Study], workers: int | None = None, **options: Any) -> list[Results]:
    """Train several studies at once, and return the results of each.

    What they have in common is trained once. They must have trainer, data, seed and store in common, and may
    differ in space, search and goal. The savings are those of all of them together. ``options`` are those of
    ``Study.run``; a ``mirror`` follows each of the studies.
    """
    return drive_studies(_checked(studies), run_options(workers=workers, **options))


def run_options(**given: Any) -> RunOptions:
    """Return the options of a run, or say which of those given there are not."""
    unknown = [name for name in given if name not in RunOptions.__struct_fields__]
    if unknown:
        expected = ", ".join(RunOptions.__struct_fields__)
        raise WorkloadError(f"run: it takes no {unknown[0]!r}; expected some of {expected}")
    return RunOptions(**given)


def _checked(studies: object) -> list[Study]:
    from hoptree.study.study import Study

    if isinstance(studies, Sequence) and all(isinstance(study, Study) for study in studies):
        return list(studies)
    raise WorkloadError(f"studies: {studies!r}; expected a list of studies, as run([a, b])")


def drive_studies(studies: Sequence[Study], options: RunOptions) -> list[Results]:
    """Run studies together, and return the results of each."""
    group = StudyGroup(studies)
    driver = Driver(group, options, follow=partial(_mirrors, studies, options.mirror))
    with in_one_look(group.first.store):
        return driver.run(lambda *found: [study.outcome(*found) for study in studies])


def grant(study: Study, request: int, workers: int | None, backend: Where) -> None:
    """Train the trial of a user's request until it ends, whatever searches would ask for next."""
    options = RunOptions(workers=workers, backend=backend, quiet=True)
    Driver(StudyGroup([study]), options, only=request).run(lambda *_: None)


def _mirrors(
    studies: Sequence[Study], where: str | WandB | None, record: Record, stack: ExitStack
) -> Sequence[Observer]:
    """Have every study followed; a mirror that cannot be opened is refused here."""
    if where is None:
        return ()
    from hoptree.mirror import LiveMirror

    return [
        stack.enter_context(LiveMirror(study.open_mirror(where), record, study.name)).watch for study in studies
    ]


@final
class Explanation:
    """Tells what is left of studies that run together, and what that takes."""

    def __init__(self, studies: Sequence[Study]) -> None:
        self._group = StudyGroup(studies)
        self._studies = list(studies)
        self._first = studies[0]
        self.name = self._group.name

    def explain(self, workers: int | None, *, accept_changes: bool = False) -> Forecast:
        """Return what is left to train, and what that takes; see ``Study.explain``."""
        from hoptree.forecast.explanation import Explainer, StudyHistory
        from hoptree.forecast.measured import Measured
        from hoptree.store import StoreMissingError

        specs = self._group.specs
        count, spec = worker_count(workers, self._first.trainer.threads), StudySpec.together(specs)
        measured = Measured()
        with ExitStack() as stack:
            stack.enter_context(in_one_look(self._first.store))
            store: Store | None = None
            journal: list[Recorded] = []
            with suppress(StoreMissingError):
                store = stack.enter_context(self._first.open_store(create=False))
                refuse_others(store, self.name, specs, accept_changes, self._group.widens)
                spec, journal = self._look_back(store, spec, measured, accept_changes)
            if not journal:
                self._rehearse(spec)
            studies = self._group.shares
            goal = self._first.goal.metric
            retries = self._is_changed(store)
            platform = self._first.trainer.platform()
            variant = NEW if store is None else self._variant(store, spec, platform, accept_changes)
            told = StudyHistory(
                spec.settings, goal, journal, store, self.name, studies, spec.root, retries, variant, platform
            )
            measured.try_out(self._first.trainer, self._first.data, self._group.tuners(spec).start())
            threads = self._first.trainer.threads
            return Explainer(
                told, lambda numbers: self._group.tuners(spec, numbers), measured, threads=threads
            ).explain(count)

    def _variant(self, store: Store, spec: StudySpec, platform: dict[str, str], accept_changes: bool) -> str:
        """Return the variant under which a run on this machine would go on; refuse what it would refuse."""
        used = Variants(store.origins, spec.root, self.name, reuse=spec.reuse, used=spec.variant)
        changes = used.changes(None) if spec.variant else []
        if changes and not accept_changes:
            raise changed(self.name, changes)
        return (used.find(platform) or NEW) if changes else expected_variant(store, self.name, spec, platform)

    def _is_changed(self, store: Store | None) -> bool:
        """Return whether code or data are not those of the last run."""
        known = None if store is None else store.catalog.find(self.name)
        if known is None:
            return False
        before, spec = StudySpec.read(known.spec), self._first.spec
        return (before.trainer, before.data) != (spec.trainer, spec.data)

    def _rehearse(self, spec: StudySpec) -> None:
        """Refuse what a run would refuse."""
        from hoptree.backends.rehearsals import check_rehearsal
        from hoptree.worker.runner import rehearse_some

        data, configs = (
            self._first.data,
            to_rehearse([], self._group.tuners(spec).start(), self._group.examples),
        )
        if configs:
            found = rehearse_some(
                self._first.trainer,
                [config.values for config in configs],
                lambda: data.partition(0),
                data.valid(),
                [config.later for config in configs],
                to_change([], self._group.tuners(spec).start()),
            )
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
                refuse_changes(self.name, other, spec, accept_changes, self._group.widens)
            alike = own or (other.trainer, other.data) == (spec.trainer, spec.data)
            if not alike or (not own and store.journal.last(known.name) > _READ):
                continue
            entries = list(store.journal.read(known.name))
            with nullcontext() if own else suppress(HoptreeError):  # others' troubles are not ours
                measured.learn(other.settings, entries, store, own=own)
            if own:
                journal = entries
                spec = continued(other, spec, self._group.widens)
        return spec, journal
