"""Elsewhere: what other drivers on the same store are training, and what they have trained.

A lineage that another driver trains is *taken*: what stands there is held back, while everything else goes on. What
the other one has made is *found*: it takes the place of what would have been trained here. Both come in as events,
so a fold over the journal knows them, and nobody here asks who the others are.
"""

from __future__ import annotations

from typing import final

from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.events import LineageFreed, LineageTaken, ReportFound, StateFound
from hoptree.core.metrics import unspelled
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Node
from hoptree.core.states import StateBooks
from hoptree.core.trials import Trials


@final
class OtherDrivers:
    """Takes in what others do; in strict order only, where a place says all about its state."""

    def __init__(
        self,
        partitions: int,
        demand: OpenWork,
        gates: Barriers,
        dispatcher: Dispatcher,
        states: StateBooks,
        trials: Trials,
    ) -> None:
        self._partitions = partitions
        self._demand = demand
        self._gates = gates
        self._dispatcher = dispatcher
        self._states = states
        self._trials = trials

    def taken(self, event: LineageTaken, node: Node) -> None:
        """Hold back what stands at a place; what runs from there ends as it may, and is not begun again."""
        node.taken.add(event.unit)
        for cursor in node.cursors:
            if cursor.unit == event.unit and not cursor.runs:
                self._dispatcher.ready.take(cursor)
                cursor.held = True

    def freed(self, event: LineageFreed, node: Node) -> None:
        """Let what stands at a place go on."""
        if event.unit not in node.taken:
            return
        node.taken.remove(event.unit)
        for cursor in node.cursors:
            if cursor.unit == event.unit and cursor.held and not cursor.runs:
                cursor.held = self._gates.bars(cursor)
                if not cursor.held:
                    self._dispatcher.fresh.append(cursor)

    def state_found(self, event: StateFound, node: Node) -> None:
        """Go on from a state that was trained elsewhere; it stays as long as something needs it.

        Where a run under way is about to make it, what it makes is waited for.
        """
        unit = event.unit
        if unit in node.states or any(c.unit < unit <= c.unit + len(c.runs) for c in node.cursors):
            return
        state = self._states.adopt(node, unit, keep=False)
        state.users += 1  # until all who wait for it have been told
        self._trials.missing.pop((node.id, unit), None)
        if unit in node.counts:
            for child in self._demand.arrive(node, unit):
                self._demand.spawn(child, unit, state)
            for trial in node.requests.get(unit, ()):
                trial.wanting.discard(unit // self._partitions)
            if unit in node.requests and not self._dispatcher.is_evaluating(node, unit):
                self._states.evaluate_later(state)
        self._demand.found(node)
        self._states.release(state)

    def report_found(self, event: ReportFound, node: Node) -> None:
        """Answer with what was evaluated elsewhere."""
        if event.unit not in node.reports:
            node.reports[event.unit] = unspelled(event.metrics)
            self._trials.answer(node, event.unit)
