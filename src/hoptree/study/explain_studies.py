"""Explaining studies: what a run would train, and the time, memory and disk that this takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, final

import msgspec

from hoptree.backends.choice import worker_count
from hoptree.backends.ray_settings import check_count
from hoptree.core.errors import HoptreeError
from hoptree.core.events import Event, TrialAsked
from hoptree.core.profile import Profile
from hoptree.driver.rehearsal_configs import to_change, to_rehearse
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.variant_choice import NEW, environment_changed, expected_variant
from hoptree.driver.variants import Variants
from hoptree.record.cost import Cost, study_cost
from hoptree.record.error_format import brief_errors
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec, continued, refuse_changes, refuse_others
from hoptree.search.budget_estimate import check_has_end, total_budget_estimate

if TYPE_CHECKING:
    from hoptree.elastic.instance import Instance
    from hoptree.forecast.explanation import StudyHistory
    from hoptree.forecast.forecast import Forecast
    from hoptree.forecast.measured import Measured
    from hoptree.store import Store
    from hoptree.store.journal import Recorded
    from hoptree.study.study import Study

_MAX_ENTRIES = 200_000  # entries of another study's journal up to which times are learned from it


class LearnedStudy(NamedTuple):
    """What is known before a run: the store, the definition with its extensions, the journal, measured times."""

    store: Store | None
    spec: StudySpec
    journal: list[Recorded]
    measured: Measured


@final
class StudyExplainer:
    """Forecasts what is left to train of studies that run together."""

    def __init__(self, studies: Sequence[Study]) -> None:
        self._group = StudyGroup(studies)
        self._studies = list(studies)
        self._first = studies[0]
        self.name = self._group.name

    def explain(
        self, workers: int | None, *, accept_changes: bool = False, instance: Instance | None = None
    ) -> Forecast:
        """Return the forecast; see ``Study.explain``."""
        from hoptree.forecast.explanation import Explainer
        from hoptree.forecast.fixed_plan import fixed_plan

        trainer, count = self._first.trainer, worker_count(workers, self._first.trainer)
        with ExitStack() as stack:
            store, spec, journal, measured = self.learn(stack, workers, accept_changes)
            history = self._history(store, spec, journal, accept_changes)
            explainer = Explainer(
                history, lambda numbers: self._group.tuners(spec, numbers), measured, threads=trainer.threads
            )
            found = explainer.explain(count)
            nodes = None
            if instance is not None and found.left.units:
                nodes = fixed_plan(found, instance, -(-count // instance.devices))
            return msgspec.structs.replace(
                found, profile=self._profile(store, spec), nodes=nodes, cost=_cost(spec, journal)
            )

    def learn(self, stack: ExitStack, workers: int | None, accept_changes: bool) -> LearnedStudy:
        """Return what earlier runs and a timing run tell; the store stays open as long as the stack."""
        from hoptree.forecast.measured import Measured
        from hoptree.forecast.pilot import PilotPlan
        from hoptree.store import StoreMissingError

        if workers is not None:
            check_count("workers", workers)
        begun = time.perf_counter()
        for study in self._studies:
            check_has_end(study.search, "a forecast needs a number of trials")
        specs = self._group.specs
        read = time.perf_counter() - begun  # all of the user's code, as a run does
        count, spec = worker_count(workers, self._first.trainer), StudySpec.together(specs)
        measured = Measured()
        stack.enter_context(brief_errors(self._first.store))
        store: Store | None = None
        journal: list[Recorded] = []
        with suppress(StoreMissingError):
            store = stack.enter_context(self._first.open_store(create=False))
            refuse_others(store, self.name, specs, accept_changes, self._group.widens)
            spec, journal = self._learn(store, spec, measured, accept_changes)
        asked = self._group.tuners(spec).start()
        plan = PilotPlan(self._studies, count, self._epochs(asked), begun)
        if not measured.try_out(plan, asked) and not journal:
            self._rehearse(spec)
        measured.opening += read
        return LearnedStudy(store, spec, journal, measured)

    def _profile(self, store: Store | None, spec: StudySpec) -> list[dict[str, Any]]:
        """Return what was measured with this trainer and data on this kind of device."""
        from hoptree.forecast.profile_report import ProfileReport

        known = Profile() if store is None else store.profiles.find(spec.trainer, spec.data)
        kind = self._first.trainer.device_kind() if known.entries else ""
        return ProfileReport(self.name, kind, known.of_kind(kind)).rows()

    def _history(
        self, store: Store | None, spec: StudySpec, journal: list[Recorded], accept_changes: bool
    ) -> StudyHistory:
        from hoptree.forecast.explanation import StudyHistory

        retries = self._is_changed(store)
        platform = self._first.trainer.platform()
        return StudyHistory(
            settings=spec.settings,
            goal=self._first.goal.metric,
            maximize=self._first.goal.maximize,
            journal=journal,
            store=store,
            name=self.name,
            studies=self._group.shares,
            root=spec.root,
            retries=retries,
            variant=NEW if store is None else self._variant(store, spec, platform, accept_changes),
            platform=platform,
        )

    def _variant(self, store: Store, spec: StudySpec, platform: dict[str, str], accept_changes: bool) -> str:
        """Return the variant that a run on this machine would have; raise an error where the run would."""
        used = Variants(store.origins, spec.root, self.name, reuse=spec.reuse, used=spec.variant)
        changes = used.changes(None) if spec.variant else []
        if changes and not accept_changes:
            raise environment_changed(self.name, changes)
        if changes:
            return used.find(platform) or NEW
        return expected_variant(store, self.name, spec, lambda: platform)

    def _is_changed(self, store: Store | None) -> bool:
        """Return whether code or data differ from the last run."""
        known = None if store is None else store.catalog.find(self.name)
        if known is None:
            return False
        before, spec = StudySpec.read(known.spec), self._first.spec
        return (before.trainer, before.data) != (spec.trainer, spec.data)

    def _epochs(self, asked: Sequence[Event]) -> float:
        """Return the epochs that the searches are expected to grant in all; at least what they ask for first."""
        estimates = [total_budget_estimate(study.search) for study in self._studies]
        known = math.fsum(estimate.expected for estimate in estimates if estimate is not None)
        return max(known, sum(event.until for event in asked if isinstance(event, TrialAsked)))

    def _rehearse(self, spec: StudySpec) -> None:
        """Raise an error where the rehearsal of a run would."""
        from hoptree.backends.rehearsals import check_rehearsal
        from hoptree.worker.runner import rehearse_until_passed

        data, configs = (
            self._first.data,
            to_rehearse([], self._group.tuners(spec).start(), self._group.examples),
        )
        if configs:
            found = rehearse_until_passed(
                self._first.trainer,
                [config.values for config in configs],
                lambda: data.partition(0),
                data.valid(),
                [config.later for config in configs],
                to_change([], self._group.tuners(spec).start()),
            )
            check_rehearsal([study.goal.metric for study in self._studies], found)

    def _learn(
        self, store: Store, spec: StudySpec, measured: Measured, accept_changes: bool
    ) -> tuple[StudySpec, list[Recorded]]:
        """Learn from the journals of this study, and of others with the same trainer and data."""
        journal: list[Recorded] = []
        for known in store.catalog.all():
            try:
                other = StudySpec.read(known.spec)
            except HoptreeError:
                continue  # written by another version: skip it
            own = known.name == self.name and bool(store.journal.last(known.name))
            if own:
                refuse_changes(self.name, other, spec, accept_changes, self._group.widens)
            is_similar = own or (other.trainer, other.data) == (spec.trainer, spec.data)
            if not is_similar or (not own and store.journal.last(known.name) > _MAX_ENTRIES):
                continue
            entries = list(store.journal.read(known.name))
            with nullcontext() if own else suppress(HoptreeError):  # errors in other studies do not matter here
                measured.learn(other.settings, entries, store, own=own)
            if own:
                journal = entries
                spec = continued(other, spec, self._group.widens)
        return spec, journal


def _cost(spec: StudySpec, journal: list[Recorded]) -> Cost | None:
    """Return what the nodes of a study have cost so far."""
    if not journal:
        return None
    record = Record(spec.settings).read(journal)
    return study_cost(record.state.nodes, record.now)
