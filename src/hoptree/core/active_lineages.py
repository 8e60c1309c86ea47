"""Active lineages between their runs: which are offered to workers, held back, cancelled or removed."""

from __future__ import annotations

from typing import final

from hoptree.core.actions import Action, CancelUnit
from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.nodes import ActiveLineage, Run
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Plan
from hoptree.core.settings import Settings
from hoptree.core.states import StateRegistry
from hoptree.core.workers import Worker


@final
class ActiveLineages:
    """Carries out what open work says about active lineages."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        open_work: OpenWork,
        barriers: Barriers,
        dispatcher: Dispatcher,
        states: StateRegistry,
        actions: list[Action],
    ) -> None:
        self._partitions = settings.partitions
        self._free = settings.order == "free"
        self._plan = plan
        self._open_work = open_work
        self._barriers = barriers
        self._dispatcher = dispatcher
        self._states = states
        self._actions = actions
        self._spawned = 0

    def aim(self, lineage: ActiveLineage, hint: int) -> None:
        """Set the partition of the next unit: fixed by the lineage in strict order, a preference in free order."""
        lineage.partition = (hint if self._free else lineage.order + lineage.unit) % self._partitions

    def offer(self, lineage: ActiveLineage) -> None:
        """Offer a lineage to the workers, unless a barrier or another driver holds it back."""
        if self._barriers.bars(lineage):
            lineage.change("hold")
        else:
            self._dispatcher.fresh.append(lineage)

    def withdraw(self, lineage: ActiveLineage) -> None:
        """Remove a lineage that has no runs, and release its state."""
        self._dispatcher.ready.take(lineage)
        self._open_work.remove(lineage)
        if lineage.state is not None:
            self._states.release(lineage.state)

    def resume(self, lineage: ActiveLineage) -> None:
        """Offer a lineage again after its run ended without a result; remove it if its state or target is gone."""
        if lineage.status == "removed" or lineage.runs:
            return
        state = lineage.state
        if state is not None and state.unit not in state.node.states:
            self.withdraw(lineage)
            self._open_work.cover_again(lineage.node)
        elif self._open_work.next_target(lineage) is None:
            self.withdraw(lineage)
        else:
            self.offer(lineage)

    def cancel_runs(self, lineage: ActiveLineage) -> None:
        """Ask the worker to cancel a lineage's runs; it stays busy until it confirms."""
        for run in lineage.runs:
            if run.status == "training":
                run.change("cancel requested")
                self._actions.append(CancelUnit(run.number, run.worker))

    def cancel_gang(self, run: Run, lost: Worker) -> None:
        """Let the workers of a run that has lost one of them cancel it; their answers are ignored."""
        if not run.crew:
            return
        for name in (run.worker, *run.crew):
            worker = self._dispatcher.workers.by_name.get(name)
            if worker is not None and worker is not lost:
                worker.queue.remove(run)
                self._dispatcher.freed.append(worker)
                self._actions.append(CancelUnit(run.number, name, silent=True))
        run.crew = ()

    def drop_runs(self, lineage: ActiveLineage, failed: Run) -> None:
        """Remove a run that did not succeed, and those queued behind it: without its state they cannot start."""
        index = lineage.runs.index(failed)
        for run in lineage.runs[index + 1 :]:
            self._dispatcher.end(run)
            run.change("run cancelled")
            self._actions.append(CancelUnit(run.number, run.worker, silent=True))
        lineage.end_runs(index)

    def settle(self) -> None:
        """Apply what the last event changed in the open work."""
        open_work = self._open_work
        if open_work.spawned:
            for lineage in open_work.spawned:
                self._start(lineage)
            open_work.spawned.clear()
        if open_work.unneeded:
            for lineage in open_work.unneeded:
                if lineage.status == "removed" or open_work.next_target(lineage) is not None:
                    continue
                if lineage.runs:
                    self.cancel_runs(lineage)
                else:
                    self.withdraw(lineage)
            open_work.unneeded.clear()
        if open_work.changed:
            for lineage in open_work.changed:
                if lineage.sequence >= 0:
                    self._dispatcher.ready.push(lineage)
            open_work.changed.clear()

    def _start(self, lineage: ActiveLineage) -> None:
        if not self._free:
            lineage.order = self._plan.rotation(lineage.node, lineage.unit)
        elif lineage.state is not None and lineage.unit % self._partitions:
            lineage.order = lineage.state.order
        self.aim(lineage, self._spawned)
        self._spawned += 1
        self.offer(lineage)
