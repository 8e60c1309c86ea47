"""The pilot: a short real run of a few configs, in a store of its own, from whose journal a forecast learns.

It has the workers, the threads, the states and the journal of a run, so its times include what a timing of batches
in this process leaves out: workers that compete for memory, hops, saving, evaluations, and the start of workers. It
trains on a part of the data if units are long, and ends after a small share of what the run is expected to take.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

from hoptree.backends.choice import worker_count
from hoptree.backends.event_loop import Observer
from hoptree.backends.local import remove_slots, slot_folders_of_study
from hoptree.core.actions import RunUnit
from hoptree.core.events import StateEvaluated, TrialAsked, UnitFailed, UnitFinished, WorkerJoined
from hoptree.core.lineage import beginning
from hoptree.core.schedules import Config, Scalar
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.driver.driver import Driver
from hoptree.driver.options import RunOptions
from hoptree.driver.study_group import StudyDefinition, StudyGroup
from hoptree.forecast.pilot_data import PilotData, batch_size, cut
from hoptree.forecast.pilot_study import PilotStudy

if TYPE_CHECKING:
    from hoptree.record.record import Record
    from hoptree.record.results import Savings
    from hoptree.store import Store
    from hoptree.store.journal import Recorded

_SHARE = 0.035  # of the run's expected time that everything before it may take
_LEAST_SECONDS = 0.5  # that are measured, if the run is not shorter
_MOST_SECONDS = 8.0
_UNITS = 2  # of each config at least
_UNIT_LIMIT = 60.0  # seconds
_EPOCHS = 2  # of each trial: workers go on with a trial as long as they can
_TRIALS = 400  # more than a pilot ever trains
_LOOKS = 12  # configs that are looked at until one can be trained
_KINDS = 4  # configs of different kinds that are looked at


class PilotPlan(NamedTuple):
    """What the pilot is for: a study, on how many workers, and how many epochs that is expected to train in all.

    ``begun`` is when the forecast was asked for, on the clock of ``time.perf_counter``.
    """

    studies: Sequence[StudyDefinition]
    workers: int
    epochs: float
    begun: float


class PilotRun(msgspec.Struct, frozen=True):
    """What a pilot has measured: its journal, and the seconds of a run before and after what a journal has."""

    settings: Settings
    entries: list[Recorded]
    data: PilotData
    opening: float
    closing: float


class PilotLook(NamedTuple):
    """What a few batches in this process have shown: None for names if no config could be trained."""

    row_seconds: float
    names: frozenset[str] | None


def look(plan: PilotPlan, asked: Sequence[TrialAsked]) -> PilotLook:
    """Train a few batches of some configs of different kinds, to find out which values matter."""
    from hoptree.trainers.timing_run import first_look

    first = plan.studies[0]
    columns = first.data.partition(0)
    seconds: list[float] = []
    names: frozenset[str] = frozenset()
    kinds: set[str] = set()
    for event in islice(asked, _LOOKS):
        values = beginning(dict(event.config))
        kind = repr([value if isinstance(value, str | bool | None) else 0 for value in values.values()])
        if kind in kinds or len(kinds) >= _KINDS:
            continue
        try:
            found = first_look(first.trainer, columns, values)
        except (Exception, SystemExit):  # noqa: S112 the rehearsal or its trial reports it
            continue
        kinds.add(kind)
        seconds.append(found.row_seconds)
        names |= found.names
    return PilotLook(max(seconds), names) if seconds else PilotLook(0.0, None)


def run_pilot(plan: PilotPlan, kinds: Sequence[Sequence[TrialAsked]], found: PilotLook) -> PilotRun:
    """Train configs of some kinds in turn for a short time; raise an error where a run would.

    The configs of a kind have the values in common that times depend on.
    """
    first = plan.studies[0]
    workers = min(plan.workers, worker_count(None, first.trainer))
    turns = [cycle(kind) for kind in kinds]
    configs = [dict(next(turn).config) for turn in islice(cycle(turns), _TRIALS)]
    largest = max(batch_size(beginning(config)) for config in configs)
    with TemporaryDirectory(prefix="hoptree-pilot-") as name:
        folder, store = Path(name), Path(name) / "store"
        data = cut(first.data, found.row_seconds, largest, folder / "data")
        studies = [
            PilotStudy(study, data.dataset, [] if number else configs, _EPOCHS, store)
            for number, study in enumerate(plan.studies)
        ]
        options = RunOptions(workers=workers, quiet=True, unit_limit=_UNIT_LIMIT)
        group = StudyGroup(studies)
        watch = _PilotWatch(plan, data, found.names, configs[: len(kinds)], group.name)
        driver = watch.driver = Driver(group, options, follow=watch.follow)
        began = time.perf_counter()
        try:
            entries = driver.run(watch.conclude)
        finally:
            for study in studies:
                remove_slots(slot_folders_of_study(store, study.name))
        if not watch.has_stopped and not watch.is_over:
            raise KeyboardInterrupt  # the user has stopped it
        closing = time.perf_counter() - watch.last
        return PilotRun(studies[0].settings, entries, data, max(0.0, watch.opened - began), closing)


@final
class _PilotWatch:
    """Observes a pilot, and stops it when it has measured enough."""

    def __init__(
        self,
        plan: PilotPlan,
        data: PilotData,
        names: frozenset[str] | None,
        configs: Sequence[Config],
        name: str,
    ) -> None:
        self.driver: Driver | None = None
        self._name = name
        self._plan = plan
        self._data = data
        self._names = names
        self._units = dict.fromkeys((self._kind(beginning(config)) for config in configs), 0)  # by kind
        self._failed: set[str] = set()
        self._whole = 0.0  # seconds that the units would have taken with all data
        self._joined = 0.0
        self.units = 0
        self.opened = self.last = 0.0
        self.has_stopped = self.is_over = False

    def follow(self, _record: Record, _stack: ExitStack) -> Sequence[Observer]:
        """Return the observers of the run."""
        return [self.see]

    def conclude(self, store: Store, record: Record, _savings: Savings) -> list[Recorded]:
        """Return the journal."""
        self.is_over = not record.live
        return list(store.journal.read(self._name))

    def see(self, step: Step) -> None:
        """Note a step."""
        self.last = time.perf_counter()
        if not self.opened and step.now > 0:  # the first events have no time yet
            self.opened = self.last - step.now
        if isinstance(step.event, WorkerJoined) and not self._joined:
            self._joined = step.now
        if isinstance(step.event, UnitFinished) and isinstance(step.run, RunUnit):
            kind = self._kind(step.run.origin.values)
            self._units[kind] = self._units.get(kind, 0) + 1
            self.units += 1
            self._whole += step.event.seconds * self._data.unit_factor(step.run.values.at(0.0))
        if isinstance(step.event, UnitFailed) and isinstance(step.run, RunUnit):
            self._failed.add(self._kind(step.run.origin.values))
        has_ended = isinstance(step.event, UnitFinished | StateEvaluated)
        if has_ended and not self.has_stopped and self._is_enough(step.now):
            self.has_stopped = True
            assert self.driver is not None
            self.driver.stop()

    def _kind(self, values: Mapping[str, Scalar]) -> str:
        """Return the same text for configs that differ only in values on which times do not depend."""
        return repr(sorted(item for item in values.items() if self._names is None or item[0] in self._names))

    def _is_enough(self, now: float) -> bool:
        """Return whether each config has been measured, and no more time may be used."""
        measured = now - self._joined
        if measured >= _MOST_SECONDS:
            return True
        missing = [kind for kind, units in self._units.items() if units < _UNITS and kind not in self._failed]
        if missing or not self.units:
            return False
        units = self._plan.epochs * self._plan.studies[0].data.partitions
        expected = units * self._whole / self.units / self._plan.workers
        used = time.perf_counter() - self._plan.begun
        return measured >= min(_LEAST_SECONDS, expected) and used >= _SHARE * expected
