"""Names for gangs: workers that train a unit together keep their connections as long as the group is the same."""

from __future__ import annotations

from typing import final

from hoptree.core.actions import RunUnit
from hoptree.trainers.gang import GangMember


@final
class Gangs:
    """Gives each group of workers a place where they find each other, and another one after a failure."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0
        self._groups: dict[str, tuple[str, tuple[str, ...]]] = {}  # by worker: the place, and the group

    def form(self, run: RunUnit) -> list[tuple[str, GangMember]]:
        """Return the workers of a run with what each has to know, the leader first."""
        group = (run.worker, *run.crew)
        places = {self._groups.get(worker) for worker in group}
        known = places.pop() if len(places) == 1 else None
        if known is None or known[1] != group:
            self._count += 1
            known = f"{self._folder}/gang-{self._count}", group
        for worker in group:
            self._groups[worker] = known
        return [(worker, GangMember(known[0], rank, len(group))) for rank, worker in enumerate(group)]

    def part(self, run: RunUnit) -> None:
        """Let the workers of a run that did not end well find each other anew next time."""
        for worker in (run.worker, *run.crew):
            self._groups.pop(worker, None)
