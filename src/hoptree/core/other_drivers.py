"""Other drivers on the same store: what they are training, and the results they have left.

A lineage that another driver trains is *taken*: it is held back here, while everything else continues. A result of
another driver is *found*: it replaces training here. Both arrive as events, so a fold over the journal knows them,
and the engine needs not know who the other drivers are.
"""

from __future__ import annotations

from typing import final

from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.events import LineageFreed, LineageTaken, ReportFound, StateFound
from hoptree.core.metrics import unspelled
from hoptree.core.nodes import Node
from hoptree.core.open_work import OpenWork
from hoptree.core.states import StateRegistry
from hoptree.core.trials import Trials


@final
class OtherDrivers:
    """Applies what other drivers do; in strict order only, where a place determines its state."""

    def __init__(
        self,
        open_work: OpenWork,
        barriers: Barriers,
        dispatcher: Dispatcher,
        states: StateRegistry,
        trials: Trials,
    ) -> None:
        self._open_work = open_work
        self._barriers = barriers
        self._dispatcher = dispatcher
        self._states = states
        self._trials = trials

    def taken(self, event: LineageTaken, node: Node) -> None:
        """Hold back the lineages at a place; a run that has started there may end, but is not repeated."""
        node.taken.add(event.unit)
        for lineage in node.active:
            if lineage.unit == event.unit and not lineage.runs:
                self._dispatcher.ready.take(lineage)
                lineage.change("hold")

    def freed(self, event: LineageFreed, node: Node) -> None:
        """Release the lineages at a place."""
        if event.unit not in node.taken:
            return
        node.taken.remove(event.unit)
        for lineage in node.active:
            if lineage.unit == event.unit and lineage.status == "held" and not self._barriers.bars(lineage):
                lineage.change("release")
                self._dispatcher.fresh.append(lineage)

    def state_found(self, event: StateFound, node: Node) -> None:
        """Continue from a state that another driver trained; it is dropped when nothing needs it.

        If a run under way is about to make the same state, ignore the other one.
        """
        unit = event.unit
        if unit in node.states or any(c.unit < unit <= c.unit + len(c.runs) for c in node.active):
            return
        state = self._states.adopt(node, unit, keep=False)
        state.users += 1  # until all who wait for it use it
        self._trials.missing.pop((node.id, unit), None)
        if unit in node.counts:
            self._trials.arrive(state)
            if unit in node.requests and not self._dispatcher.is_evaluating(node, unit):
                self._states.evaluate_later(state)
        self._open_work.found(node)
        self._states.release(state)

    def report_found(self, event: ReportFound, node: Node) -> None:
        """Report metrics that another driver computed."""
        if event.unit not in node.reports:
            node.reports[event.unit] = unspelled(event.metrics)
            self._trials.answer(node, event.unit)
