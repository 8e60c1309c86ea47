"""Gates: what holds cursors back.

A search may ask for a barrier, so that no trial of its study runs ahead of a report it awaits; and what another
driver trains is waited for.
"""

from __future__ import annotations

from typing import final

from hoptree.core.open_work import OpenWork
from hoptree.core.plan import ActiveLineage, Trial


@final
class _Gate:
    __slots__ = ("held", "level", "members")

    def __init__(self) -> None:
        self.members: dict[int, Trial] = {}
        self.level = 0
        self.held: list[ActiveLineage] = []


@final
class Barriers:
    """One gate per study with a barrier; its level, the first report that is owed, is how far trials may train."""

    def __init__(self, partitions: int, demand: OpenWork) -> None:
        self._partitions = partitions
        self._demand = demand
        self._gates: dict[str, _Gate] = {}

    @property
    def any(self) -> bool:
        """Whether any study has a barrier."""
        return bool(self._gates)

    def enter(self, trial: Trial) -> None:
        """Let a trial with open requests take part; what others were allowed before is not called back."""
        gate = self._gates.setdefault(trial.study, _Gate())
        gate.members[trial.number] = trial
        owed = min(trial.open)
        gate.level = min(gate.level, owed) if gate.level else owed

    def bars(self, cursor: ActiveLineage) -> bool:
        """Return whether a cursor must wait; it is then kept until its gate opens, or its lineage is freed."""
        if cursor.unit in cursor.node.taken:
            return True
        if not self._gates or cursor.unit % self._partitions:
            return False
        epoch = cursor.unit // self._partitions
        gates: list[_Gate] = []
        for trial in self._demand.trials_behind(cursor):
            gate = self._gates.get(trial.study) if trial.barrier else None
            if gate is None or epoch < gate.level:
                return False
            gates.append(gate)
        for gate in gates:
            if cursor not in gate.held:
                gate.held.append(cursor)
        return bool(gates)

    def reconsider(self) -> list[ActiveLineage]:
        """Return the held cursors that a new request, which waits for no gate, lets go on."""
        return [cursor for gate in self._gates.values() for cursor in self._release(gate)]

    def opened(self, trial: Trial) -> list[ActiveLineage]:
        """Return the cursors that may go on now that a trial has reported: none while another one owes."""
        gate = self._gates.get(trial.study)
        if gate is None:
            return []
        owed = min((min(t.open) for t in gate.members.values() if t.open), default=0)
        if owed <= gate.level:
            return []
        gate.level = owed
        return self._release(gate)

    def leave(self, trial: Trial) -> list[ActiveLineage]:
        """Let a trial that ended go; return the cursors that waited for it."""
        gate = self._gates.get(trial.study)
        if gate is None or trial.number not in gate.members:
            return []
        del gate.members[trial.number]
        if not gate.members:
            gate.level = 0
            return self._release(gate)
        return self.opened(trial)

    def _release(self, gate: _Gate) -> list[ActiveLineage]:
        held, gate.held = gate.held, []
        free: list[ActiveLineage] = []
        for cursor in held:
            cursor.held = False
            if not cursor.stale and not cursor.runs:
                cursor.held = self.bars(cursor)
                if not cursor.held:
                    free.append(cursor)
        return free
