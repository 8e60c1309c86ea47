"""The workers that train a unit together: how they find each other, and when a failed unit has left all of them.

The engine may give a worker its next run as soon as it hears that a run has ended. A member of a gang that still
waits for the others is not ready for that: it would come late to its next gang, whose members would wait for it in
turn. So the failure of a gang's unit is reported when the last of its workers has left it.
"""

from __future__ import annotations

from typing import final

from msgspec import structs

from hoptree.core.actions import RunUnit
from hoptree.core.events import Event, UnitFailed
from hoptree.trainers.gang import GangMember


@final
class Gangs:
    """Names groups of workers, and anew after a failure; knows which workers are still busy with a run."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._count = 0
        self._groups: dict[str, tuple[str, tuple[str, ...]]] = {}  # by worker: the name of its group, and the group
        self._busy: dict[int, set[str]] = {}  # by run
        self._held: dict[int, list[Event]] = {}  # by run: what is reported when the last worker has left it

    def form(self, run: RunUnit, rendezvous: str) -> list[tuple[str, GangMember]]:
        """Return the workers of a run with what each has to know, the leader first."""
        group = (run.worker, *run.crew)
        names = {self._groups.get(worker) for worker in group}
        known = names.pop() if len(names) == 1 else None
        if known is None or known[1] != group:
            self._count += 1
            known = f"{self._session}-{self._count}", group
        for worker in group:
            self._groups[worker] = known
        self._busy[run.run] = set(group)
        return [
            (worker, GangMember(rendezvous, known[0], rank, len(group), run.layout))
            for rank, worker in enumerate(group)
        ]

    def part(self, run: RunUnit) -> None:
        """Let the workers of a run that did not end well find each other anew next time."""
        for worker in (run.worker, *run.crew):
            self._groups.pop(worker, None)

    def busy(self, run: int) -> list[str]:
        """Return the workers that have not left a run."""
        return sorted(self._busy.get(run, ()))

    def hold(self, run: int, events: list[Event]) -> list[Event]:
        """Return the events of a run that did not succeed, or nothing as long as a worker is busy with it."""
        if run not in self._busy:
            return events
        self._held.setdefault(run, []).extend(events)
        return []

    def explain(self, failed: UnitFailed) -> None:
        """Replace the failure that is held for a run by what another of its workers says."""
        held = self._held.get(failed.run, [])
        for place, event in enumerate(held):
            if isinstance(event, UnitFailed):
                held[place] = structs.replace(failed, worker=event.worker)

    def leave(self, run: int, worker: str) -> list[Event]:
        """Note that a worker has left a run; return the events that were held for the last of them."""
        busy = self._busy.get(run, set())
        busy.discard(worker)
        if busy:
            return []
        self._busy.pop(run, None)
        return self._held.pop(run, [])
