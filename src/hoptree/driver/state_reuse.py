"""Reuse of stored states: what a store holds of the lineages that trials ask for, and how long it keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.core.actions import RunUnit
from hoptree.core.events import (
    Event,
    KnownResults,
    Metrics,
    ReportFound,
    StateEvaluated,
    StateFound,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
)
from hoptree.core.lineage import History, Phase, branched
from hoptree.core.plan import Node
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.store.reports import StoredMetrics

_HEADROOM = 0.9  # of the budget: how much stays after an eviction
_CHUNK = 500  # keys in one statement: SQLite allows at least 999


@final
class StateIndex:
    """Looks up for one study what has been trained before, and keeps the ledger of the states that it saves.

    Unshared trials are not looked up, nor are trials in free order: there, the lineage does not say in which order
    the data was visited. With ``holds=False`` it only reads: what it finds may be evicted.
    """

    def __init__(self, store: Store, study: str, budget: int, *, holds: bool = True) -> None:
        self._holds = holds
        self._store = store
        self._study = study
        self._budget = budget
        self._size = sum(store.states.sizes().values())

    def look_up(self, event: Event, study: StudyState) -> Event:
        """Return a request for training with the stored states and reports of its lineage added."""
        if study.settings.order == "free":
            return event
        match event:
            case TrialAsked(config=config, alone=False):
                base = event.root, event.variant
                known = self._known(study, (Phase(0, config),), base, 1, event.until)
            case TrialBranched(source=source, at=at, config=config) if not study.trials[source].alone:
                trial = study.trials[source]
                phases = branched(trial.history, at, dict(config))
                known = self._known(study, phases, trial.base_to_come, 1, event.until)
            case TrialExtended(trial=number) if not study.trials[number].alone:
                trial = study.trials[number]
                if trial.ending in ("stopped", "failed"):
                    return event  # it has no effect: do not add a node that a replay would not add
                if trial.must_move(event.until):
                    known = self._known(study, trial.history, trial.base_to_come, 1, event.until)
                else:
                    first = min(trial.until + 1, event.until)
                    known = self._known(study, trial.history, trial.base, first, event.until)
            case TrialRetried(trial=number) if not study.trials[number].alone:
                trial = study.trials[number]
                if trial.ending != "failed":
                    return event  # as above
                known = self._known(study, trial.history, trial.base, 1, trial.until)
            case TrialRebased(trial=number) if not study.trials[number].alone:
                trial, base = study.trials[number], (event.root, event.variant)
                if trial.ending is not None or trial.base == base:
                    return event  # as above
                known = self._known(study, trial.history, base, 1, trial.until)
            case _:
                return event
        return event if known is None else msgspec.structs.replace(event, known=known)

    def _known(
        self, study: StudyState, history: History, base: tuple[str, str], first: int, until: int
    ) -> KnownResults | None:
        plan = study.plan
        epochs = range(first, until + 1)
        if not epochs:
            return None
        keys: dict[str, int] = {}
        for place in plan.places(history, plan.root(*base), epochs):
            if place.unit not in place.node.states:
                keys[place.node.state_key(place.unit)] = place.unit // plan.partitions
        stored = {key: epoch for key, epoch in keys.items() if key in self._store.states}
        reports = {keys[key]: metrics for key, metrics in self._store.reports.find(keys).items()}
        if not stored and not reports:
            return None
        if self._holds:
            self._store.ledger.hold(stored, self._study)
            self._store.reports.hold([key for key, epoch in keys.items() if epoch in reports], self._study)
        return KnownResults(tuple(stored.values()), tuple(sorted(reports.items())))

    def find(self, node: Node, after: int, partitions: int, *, deep: bool = False) -> list[Event]:
        """Return events for what the store holds by now of a node beyond a unit, as far as trials wait for it.

        A report that ends a trial is skipped until the state that the trial ends with is stored: the driver that
        evaluated it may have ended before it saved the state. With ``deep``, nodes that wait for this one are
        searched too: a state found there makes the units before it unnecessary.
        """
        places = [*_waiting(node, after)] if deep else []
        places.append((node, after))
        asked: dict[str, tuple[Node, int]] = {}
        for place, beyond in places:
            for stop in place.targets:
                if stop > beyond and stop in place.requests and stop not in place.reports:
                    asked[place.state_key(stop)] = place, stop
        reports: dict[int, dict[int, StoredMetrics]] = {place.id: {} for place, _ in places}
        stored = self._store.reports.find(asked)
        self._store.reports.hold(stored, self._study)
        for key, metrics in stored.items():
            place, stop = asked[key]
            reports[place.id][stop] = metrics
        found = [self._found(place, beyond, reports[place.id], partitions) for place, beyond in places]
        return [event for events in found for event in events]

    def _found(self, node: Node, after: int, reports: dict[int, StoredMetrics], partitions: int) -> list[Event]:
        stops = [stop for stop in node.targets if stop > after]
        stored = self._stored_beyond(node, after, stops[-1], partitions) if stops else []
        here = [*node.states, *(active.unit for active in node.active)]
        found: set[int] = set()
        for stop in stops:
            if stop in reports and not needs_state(node, stop, partitions):
                continue
            deepest = max((unit for unit in stored if unit <= stop), default=-1)
            if deepest > max((unit for unit in here if unit <= stop), default=-1):
                found.add(deepest)
            if stop in reports and deepest < stop and stop not in node.states:
                del reports[stop]
        self._store.ledger.hold([node.state_key(unit) for unit in found], self._study)
        events: list[Event] = [StateFound(node.id, unit) for unit in sorted(found)]
        return events + [ReportFound(node.id, stop, reports[stop]) for stop in sorted(reports)]

    def _stored_beyond(self, node: Node, after: int, last: int, partitions: int) -> list[int]:
        ends = range((after // partitions + 1) * partitions, last + 1, partitions)
        units = sorted({*ends, *(stop for stop in node.targets if stop > after)})
        return [unit for unit in units if unit not in node.states and node.state_key(unit) in self._store.states]

    def reserve(self, key: str, study: str) -> None:
        """Hold a state that is being saved for another study that waits for it."""
        self._store.ledger.hold([key], study)

    def release_reserved(self, keys: Iterable[str]) -> None:
        """Release states that other drivers held for this study and that it did not need."""
        names = list(keys)
        for start in range(0, len(names), _CHUNK):
            self._store.ledger.release(names[start : start + _CHUNK], self._study)

    def holds(self, key: str) -> bool:
        """Return whether a state is in the store."""
        return key in self._store.states

    # --- the ledger of states on disk -------------------------------------------------------------------

    def saved(self, key: str, size: int, seconds: float) -> None:
        """Enter a state that this study has saved, and evict others if the disk budget is exceeded."""
        self._store.ledger.enter(key, self._study, size, seconds)
        self._size += size
        self.evict()

    def dropped(self, key: str) -> None:
        """Record that this study no longer needs a state."""
        self._store.ledger.release([key], self._study)
        self.evict()

    def has_room(self, size: int) -> bool:
        """Return whether a state of this size may stay in the store when no study needs it."""
        return size <= self._budget * _HEADROOM

    def evict(self) -> None:
        """If the budget is exceeded, evict the states with the least benefit, down to some headroom."""
        if self._size > self._budget:
            self._size -= sum(record.size for record in self._store.ledger.evict(int(self._budget * _HEADROOM)))


def needs_state(node: Node, stop: int, partitions: int) -> bool:
    """Return whether the state at a place is needed, to train from it or to end a trial, or only its report."""
    if stop in node.waiters or not node.requests.get(stop):
        return True
    return any(trial.until * partitions == stop for trial in node.requests[stop])


def _waiting(node: Node, after: int) -> Iterator[tuple[Node, int]]:
    """Yield the nodes that wait for a place in a node, and those that wait for them, deepest first."""
    for stop, children in node.waiters.items():
        if stop > after:
            for child in children:
                yield from _waiting(child, child.start)
                yield child, child.start


def reports_of(step: Step, study: StudyState) -> dict[str, Metrics]:
    """Return the metrics that an evaluation found, by state key, for other studies to look up."""
    run = step.run
    if not isinstance(step.event, StateEvaluated) or run is None or study.settings.order == "free":
        return {}
    if study.plan.nodes[run.node].is_private:
        return {}
    return {run.target_state if isinstance(run, RunUnit) else run.key: dict(step.event.metrics)}
