"""Layouts in a run: which the models can have, and what the store remembers of those that did not fit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, final

from hoptree.backends.choice import find_backend, worker_count
from hoptree.backends.ray_settings import Ray
from hoptree.core.actions import RunUnit
from hoptree.core.allotment import Allotment
from hoptree.core.errors import RefusedError
from hoptree.core.events import UnitFailed
from hoptree.core.layout_choice import Candidate, LayoutChoice, LayoutOptions, Shortage
from hoptree.core.layouts import Layout
from hoptree.core.nodes import Node
from hoptree.core.profile import Profile, ProfileEntry
from hoptree.core.replication import ReplicationSettings
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState
from hoptree.driver.options import RunOptions
from hoptree.driver.study_group import StudyGroup
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec

if TYPE_CHECKING:
    from hoptree.store import Store

log = logging.getLogger("hoptree")


def tried_in_vain(state: StudyState, root: str) -> Iterator[tuple[Node, Candidate, Shortage]]:
    """Yield the layouts in which units of the present code were out of memory."""
    if not state.too_large:
        return
    current: set[int] = set()
    for trial in state.trials.values():
        if trial.root == root:
            path = state.plan.path_with_ends(trial, trial.until * state.settings.partitions)
            current.update(node.id for node, _ in path)
    for (node, layout, devices), shortage in state.too_large.items():
        if node in current:
            yield state.plan.nodes[node], Candidate(Layout.parse(layout), devices), Shortage(*shortage)


def _why_alone(spec: StudySpec) -> str:
    """Return why each unit is trained by one worker, however many there are, and what to do."""
    if spec.settings.order != "strict":
        return "in free order one worker trains each unit; expected order='strict'"
    return "with this backend one worker trains each unit; expected backend='local' or 'ray'"


@final
class RunLayouts:
    """Makes the inputs of an engine that decide how units are trained, and keeps what the run learns of layouts.

    The profile of a store is used and kept only for local workers: other nodes may have other kinds of devices.
    """

    def __init__(
        self, store: Store, group: StudyGroup, spec: StudySpec, options: RunOptions, record: Record
    ) -> None:
        self._store, self._spec, self._record = store, spec, record
        backend = find_backend(options.backend)
        trainer = group.first.trainer
        self._is_local = backend == "local"
        self._copies = options.replicate_bytes if isinstance(backend, Ray) else 0
        self._sizes = tuple(file.bytes for file in group.first.data.manifest.train)
        forms_gangs = (self._is_local or isinstance(backend, Ray)) and spec.settings.order == "strict"
        self._shards = min(study.trainer.shards for study in group.studies) if forms_gangs else 1
        known = store.profiles.find(spec.trainer, spec.data) if self._is_local else Profile()
        self._kind = trainer.device_kind() if self._is_local else ""
        self._profile = known.of_kind(self._kind)
        if self._is_local:
            workers = worker_count(options.workers, trainer)
        else:
            workers = (backend.asked(options.workers).workers if isinstance(backend, Ray) else None) or self._shards
        self._widest = max(1, min(self._shards, workers))
        self._why_alone = "" if forms_gangs else _why_alone(spec)
        self.choice = LayoutChoice(self._widest, options.memory_bytes, self._profile)
        self.choice.resume(tried_in_vain(record.state, spec.root))

    def allotment(self) -> Allotment | None:
        """Return what forms gangs, if the trainer's models can be trained by several workers of this backend."""
        return Allotment(self._shards, self._profile) if self._shards > 1 else None

    def replication(self) -> ReplicationSettings | None:
        """Return what lets idle nodes take copies: None without gangs, and where all workers hold everything."""
        if not self._copies or self._shards == 1:
            return None
        return ReplicationSettings(self._copies, self._sizes)

    def offer(self, options: LayoutOptions) -> None:
        """Use the layouts that the models can have; refuse a fixed one for which there are too few workers."""
        if not any(options.candidates(self._widest)):
            kinds = " or ".join(map(repr, options.kinds))
            missing = f"this run has {self._widest} of them; expected at least workers=2 on one machine"
            raise RefusedError(
                f"layout: {kinds} divides a model among workers, but {self._why_alone or missing}, or layout='auto'"
            )
        self.choice.offer(options)

    def note(self, step: Step) -> None:
        """Keep that a layout did not fit, so that later runs do not try it with this limit."""
        event, run = step.event, step.run
        is_short = isinstance(event, UnitFailed) and event.fault == "memory" and not step.evaluating
        if not is_short or not isinstance(event, UnitFailed) or not isinstance(run, RunUnit):
            return
        log.info("unit %d of %s is out of memory in the layout %s", run.unit, run.key[:8], run.layout)
        if not self._is_local or not event.limit:  # without a limit, other processes may have taken the memory
            return
        values = self.choice.architecture(self._record.plan.nodes[run.node])
        entry = ProfileEntry(
            values, run.layout, 1 + len(run.crew), self._kind, inf, event.limit, version("hoptree")
        )
        self._store.profiles.put(self._spec.trainer, self._spec.data, [entry])
