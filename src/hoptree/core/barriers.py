"""What holds lineages back: barriers, and lineages that another driver trains.

A search may request a barrier, so that no trial of its study trains past a report that the search waits for.
"""

from __future__ import annotations

from typing import final

from hoptree.core.nodes import ActiveLineage
from hoptree.core.open_work import OpenWork
from hoptree.core.trial import Trial


@final
class _Barrier:
    __slots__ = ("held", "level", "members")

    def __init__(self) -> None:
        self.members: dict[int, Trial] = {}
        self.level = 0
        self.held: list[ActiveLineage] = []


@final
class Barriers:
    """One barrier per study that uses one; trials may train up to its level, the first epoch with a report due."""

    def __init__(self, partitions: int, open_work: OpenWork) -> None:
        self._partitions = partitions
        self._open_work = open_work
        self._by_study: dict[str, _Barrier] = {}

    @property
    def any(self) -> bool:
        """Whether any study has a barrier."""
        return bool(self._by_study)

    def enter(self, trial: Trial) -> None:
        """Add a trial with open requests; lineages that were released before are not held again."""
        barrier = self._by_study.setdefault(trial.study, _Barrier())
        barrier.members[trial.number] = trial
        owed = min(trial.open)
        barrier.level = min(barrier.level, owed) if barrier.level else owed

    def bars(self, lineage: ActiveLineage) -> bool:
        """Return whether a lineage must wait until its barrier rises or another driver frees it."""
        if lineage.unit in lineage.node.taken:
            return True
        if not self._by_study or lineage.unit % self._partitions:
            return False
        epoch = lineage.unit // self._partitions
        barriers: list[_Barrier] = []
        for trial in self._open_work.trials_behind(lineage):
            barrier = self._by_study.get(trial.study) if trial.barrier else None
            if barrier is None or epoch < barrier.level:
                return False
            barriers.append(barrier)
        for barrier in barriers:
            if lineage not in barrier.held:
                barrier.held.append(lineage)
        return bool(barriers)

    def reconsider(self) -> list[ActiveLineage]:
        """Return the held lineages that a new request without a barrier releases."""
        return [lineage for barrier in self._by_study.values() for lineage in self._release(barrier)]

    def opened(self, trial: Trial) -> list[ActiveLineage]:
        """Return the lineages that a report releases: none while another trial of the study has one due."""
        barrier = self._by_study.get(trial.study)
        if barrier is None:
            return []
        owed = min((min(t.open) for t in barrier.members.values() if t.open), default=0)
        if owed <= barrier.level:
            return []
        barrier.level = owed
        return self._release(barrier)

    def leave(self, trial: Trial) -> list[ActiveLineage]:
        """Remove a trial that ended; return the lineages that waited for it."""
        barrier = self._by_study.get(trial.study)
        if barrier is None or trial.number not in barrier.members:
            return []
        del barrier.members[trial.number]
        if not barrier.members:
            barrier.level = 0
            return self._release(barrier)
        return self.opened(trial)

    def _release(self, barrier: _Barrier) -> list[ActiveLineage]:
        held, barrier.held = barrier.held, []
        free: list[ActiveLineage] = []
        for lineage in held:
            if lineage.status in ("removed", "running"):
                continue
            if not self.bars(lineage):
                if lineage.status == "held":
                    lineage.change("release")
                free.append(lineage)
            elif lineage.status == "idle":
                lineage.change("hold")
        return free
