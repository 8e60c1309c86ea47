"""The formation of gangs: in which layout a unit is trained next, and which workers help its leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import final

from hoptree.core.allotment import Allotment
from hoptree.core.gang_planner import GangPlanner
from hoptree.core.layout_choice import Candidate, LayoutChoice
from hoptree.core.layouts import DATA, Layout
from hoptree.core.nodes import ActiveLineage, Run
from hoptree.core.workers import Worker, Workers


@final
class GangFormation:
    """Chooses layouts and crews; without ``allotment`` every unit is trained by one worker.

    ``short`` is a ready lineage that waits for more workers than are idle, and its partition.
    """

    def __init__(self, workers: Workers, *, free: bool) -> None:
        self._workers = workers
        self._free = free
        self.allotment: Allotment | None = None
        self.layouts = LayoutChoice()
        self.planner: GangPlanner | None = None
        self.short: tuple[ActiveLineage, int] | None = None

    @property
    def are_trivial(self) -> bool:
        """Whether one worker trains each unit, with the whole model in memory."""
        return self.allotment is None and self.layouts.is_trivial

    @property
    def is_short(self) -> bool:
        """Whether a lineage that is ready waits for more workers."""
        return self.short is not None and self.short[0].sequence >= 0

    def can_gather(self, partition: int, devices: int) -> bool:
        """Return whether a machine has so many workers that hold a partition, idle or not."""
        if devices == 1 or self.allotment is None or self._free:
            return devices == 1
        workers = self._workers.by_name.values()
        near = Counter(each.machine for each in workers if partition in each.held and not each.draining)
        return devices <= max(near.values(), default=0)

    @property
    def unmet(self) -> tuple[str, int, int] | None:
        """The layout, workers and partition of a lineage for which no machine has enough workers; None: none."""
        if self.short is None or not self.is_short:
            return None
        lineage, partition = self.short
        candidate = self.choose(lineage, partition)
        if self.can_gather(partition, candidate.devices):
            return None
        return candidate.layout.name, candidate.devices, partition

    def choose(self, lineage: ActiveLineage, partition: int, *, alone: bool = False) -> Candidate:
        """Return the layout of a lineage's next unit; ``alone``: no other worker can help."""
        only = self.layouts.only
        if only is not None:
            return only
        return self.layouts.choose(lineage.node, _is_alone if alone else partial(self.can_gather, partition))

    def has_enough(self, leader: Worker, lineage: ActiveLineage, partition: int) -> bool:
        """Return whether so many workers are idle as the layout of a lineage's next unit needs."""
        devices = self.choose(lineage, partition).devices
        return devices == 1 or devices <= 1 + len(self._helpers(leader, partition))

    def is_plain(self, lineage: ActiveLineage) -> bool:
        """Return whether any number of workers may train copies of a lineage's model."""
        assert self.allotment is not None
        widest = self.allotment.widest
        candidate = self.choose(lineage, lineage.partition)
        return self.layouts.widest_copies(lineage.node, candidate, widest) == widest

    def crew(self, leader: Worker, run: Run, candidate: Candidate, ready: int) -> Sequence[Worker]:
        """Return idle workers that help: as many as the layout needs, or that pay and that nobody else needs.

        ``ready`` is the number of other lineages that are ready.
        """
        if self.allotment is None:
            return ()
        others = self._helpers(leader, run.partition)
        width = candidate.devices
        if width == 1:
            free = 1 + max(0, len(others) - ready)
            width = self.allotment.width(run.node, self.layouts.widest_copies(run.node, candidate, free))
        return others[: width - 1]

    def form(self, run: Run, candidate: Candidate, crew: Sequence[Worker]) -> None:
        """Assign a run to the workers that help its leader, and note its layout."""
        for worker in crew:
            worker.queue.append(run)
            self._workers.set_busy(worker)
        run.crew = tuple(worker.name for worker in crew)
        run.layout = _layout_name(candidate, run)
        if self.short is not None and self.short[0] is run.lineage:
            self.short = None

    def _helpers(self, leader: Worker, partition: int) -> list[Worker]:
        """Return the idle workers of the leader's machine that hold a partition, without the leader."""
        idle = self._workers.idle[partition].values()
        return [each for each in idle if each.machine == leader.machine and each is not leader]


def _is_alone(devices: int) -> bool:
    return devices == 1


def _layout_name(candidate: Candidate, run: Run) -> str:
    """Return the layout of a run: workers that train a unit together with a whole model have copies of it."""
    layout = candidate.layout
    if candidate.devices == 1 and run.crew:
        layout = Layout(DATA, layout.offload, layout.checkpoint)
    return layout.name
