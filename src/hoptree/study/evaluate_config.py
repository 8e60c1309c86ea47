"""Evaluation of a config on demand: its metrics after an epoch, from the store or trained for the purpose."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

from hoptree.core.errors import HoptreeError
from hoptree.core.events import USER, Metrics
from hoptree.core.lineage import ConfigItems, Phase
from hoptree.core.metrics import unspelled
from hoptree.core.plan import Plan
from hoptree.driver.request_validation import addition
from hoptree.driver.variant_choice import expected_variant
from hoptree.record.opening import last_snapshot
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.search.checks import whole

if TYPE_CHECKING:
    from hoptree.backends.choice import Where
    from hoptree.core.schedules import Config
    from hoptree.store import Store
    from hoptree.study.study import Study

_PAUSE = 0.25  # seconds between two polls while another driver trains


def evaluate(study: Study, config: Config, epoch: int, workers: int | None, backend: Where) -> Metrics:
    """Return a config's metrics after an epoch; see ``Study.evaluate``."""
    from hoptree.store import StudyHeldError
    from hoptree.study.run_studies import train_request

    whole("epoch", epoch, 1)
    added = addition(config, epoch, every=0)
    items = added.config
    with study.open_store() as store:
        reports = _Reports(store, study, items, epoch)
        found = reports.find()
        if found is not None:
            return found
        reports.request = store.requests.make(study.name, added)
        while (found := reports.find()) is None:
            reports.raise_if_ended()
            if store.holder(study.name) is not None:
                time.sleep(_PAUSE)
                continue
            try:
                train_request(study, reports.request, workers, backend)
            except StudyHeldError:
                continue  # another driver has started and takes the request up
            if (found := reports.find()) is None:
                reports.raise_if_ended()
                raise HoptreeError(
                    f"{dict(items)}: training stopped before epoch {epoch}; call evaluate again to resume it"
                )
            return found
        return found


@final
class _Reports:
    """Reads the journals in which the metrics may appear, and the reports of all studies."""

    def __init__(self, store: Store, study: Study, config: ConfigItems, epoch: int) -> None:
        self._store = store
        self._study = study
        self._epoch = epoch
        self._history = (Phase(0, config),)
        self._journals: dict[str, tuple[Record, int]] = {}  # by name: the record, and the last journal entry read
        self.request = -1  # number of the user request, -1 if there is none

    def find(self) -> Metrics | None:
        """Return the metrics; None if no study has reported them yet."""
        self._read()
        for record, _ in self._journals.values():
            for trial in record.trials:
                is_own = trial.study == self._study.name and trial.history == self._history
                if is_own and self._epoch in trial.curve:
                    return trial.curve[self._epoch]
        if not self._study.share or self._study.settings.order == "free":
            return None
        plan = Plan(self._study.settings.partitions, order=self._study.settings.order)
        (place,) = plan.places(self._history, plan.root(*self._base()), [self._epoch])
        key = place.node.state_key(place.unit)
        found = self._store.reports.find([key]).get(key)
        return None if found is None else unspelled(found)

    def raise_if_ended(self) -> None:
        """Raise an error if the requested trial has ended without the report."""
        for record, _ in self._journals.values():
            for trial in record.trials:
                is_own = trial.study == self._study.name and trial.asked_by == (USER, self.request)
                if is_own and trial.ending in ("failed", "stopped"):
                    raise HoptreeError(
                        f"{dict(trial.history[0].config)}: it {trial.ending}; {trial.reason}".rstrip("; ")
                    )

    def _base(self) -> tuple[str, str]:
        """Return the root and the variant under which the study would be trained."""
        spec = self._study.spec
        return spec.root, expected_variant(self._store, self._study.name, spec, self._study.trainer.platform)

    def _read(self) -> None:
        for known in self._store.catalog.all():
            spec = StudySpec.read(known.spec)
            if self._study.name not in (known.name, *spec.members):
                continue
            record, last = self._journals.get(known.name) or last_snapshot(self._store, known.name, spec.settings)
            entries = list(self._store.journal.read(known.name, last))
            for _ in record.replay(entries):
                pass
            self._journals[known.name] = record, entries[-1].seq if entries else last
