"""Creates actions as the engine does: the only module of the suites that knows their fields."""

from __future__ import annotations

from itertools import count
from typing import final

from hoptree.core.actions import CancelUnit, DropState, Evaluate, RunUnit, SaveState
from hoptree.core.lineage import History, branched, history
from hoptree.core.plan import Node, Plan
from hoptree.core.schedules import Config


@final
class ActionMaker:
    """Makes actions about lineages: what follows a config from the beginning, and what branches from another one.

    Unit n of a lineage visits the partition n modulo their number.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._plan = Plan(partitions)
        self._runs = count()

    def lineage(self, config: Config) -> History:
        """Return the lineage of a config."""
        return history(config)

    def branch(self, source: History, at: int, config: Config) -> History:
        """Return the lineage that branches off another one at an epoch, with a config from there on."""
        return branched(source, at, config)

    def train(self, lineage: History, unit: int, worker: str, *, evaluate: bool = False, home: str = "") -> RunUnit:
        """Return an action that trains a unit; with ``evaluate`` it also evaluates the new state."""
        node = self._node(lineage, unit + 1)
        source = node.parent if unit == node.start and node.parent is not None else node
        return RunUnit(
            next(self._runs),
            worker,
            node.id,
            source.id,
            unit,
            unit % self.partitions,
            unit // self.partitions,
            node.key,
            node.values,
            home,
            node.built_from,
            source.key,
            evaluate=evaluate,
        )

    def evaluate(self, lineage: History, unit: int, worker: str) -> Evaluate:
        """Return an action that evaluates the state after some units."""
        node = self._node(lineage, unit)
        return Evaluate(next(self._runs), worker, node.id, unit, node.state_key(unit), node.key, node.built_from)

    def cancel(self, run: RunUnit | Evaluate) -> CancelUnit:
        """Return an action that cancels a run."""
        return CancelUnit(run.run, run.worker)

    def drop(self, lineage: History, unit: int) -> DropState:
        """Return an action that drops the state after some units."""
        node = self._node(lineage, unit)
        return DropState(node.id, unit, node.key, node.tree)

    def save(self, lineage: History, unit: int) -> SaveState:
        """Return an action that saves the state after some units."""
        node = self._node(lineage, unit)
        return SaveState(node.id, unit, node.state_key(unit))

    def _node(self, lineage: History, units: int) -> Node:
        return self._plan.path(lineage, self._plan.root("suite"), units)[-1]
