"""Which states are stored, who uses them, and which are dropped when nobody does."""

from __future__ import annotations

from collections import deque
from typing import final

from hoptree.core.actions import Action, DropState
from hoptree.core.plan import Node, State, Trial


@final
class States:
    """Counts the users of every state: cursors, evaluations, trials that ended with it, and the store."""

    def __init__(self, actions: list[Action]) -> None:
        self._actions = actions
        self.evaluations: deque[State] = deque()  # states whose metrics are due and not being computed

    def store(self, node: Node, unit: int, home: str, order: int) -> State:
        """Note that a state has come; one that was lost and is still in use has come back. Its maker uses it.

        One that was found in the store meanwhile is the same state, made twice.
        """
        state = node.states.get(unit) or node.lost.pop(unit, None)
        if state is None:
            state = State(node, unit, home, order)
        else:
            state.home, state.order = home, order
        node.states[unit] = state
        state.users += 1
        for trial in node.finals.get(unit, ()):
            self.pin(trial, state)
        return state

    def adopt(self, node: Node, unit: int) -> None:
        """Note that the store has held a state all along, and keeps it."""
        state = node.lost.pop(unit, None)
        if state is None:
            state = State(node, unit, "", 0)
        node.states[unit] = state
        self.keep(state)
        for trial in node.finals.get(unit, ()):
            self.pin(trial, state)

    def lose(self, state: State) -> None:
        """Note that a state is gone; while a run that began from it is under way, it may come back."""
        del state.node.states[state.unit]
        state.node.lost[state.unit] = state
        self.let_go(state)

    def keep(self, state: State) -> None:
        """Let the store be a user of a state."""
        if not state.kept:
            state.kept = True
            state.users += 1

    def let_go(self, state: State) -> None:
        """Let the store be a user no longer."""
        if state.kept:
            state.kept = False
            self.release(state)

    def release(self, state: State) -> None:
        """Take one user away; the last one's going drops the state."""
        state.users -= 1
        if state.users:
            return
        if state.node.states.pop(state.unit, None) is not None:
            self._actions.append(DropState(state.node.id, state.unit))
        else:
            state.node.lost.pop(state.unit, None)

    def pin(self, trial: Trial, state: State | None) -> None:
        """Keep the state that a trial ended with, and let go of the one kept before."""
        old, trial.pinned = trial.pinned, state
        if state is not None:
            state.users += 1
        if old is not None:
            self.release(old)

    def evaluate_later(self, state: State) -> None:
        """Have a state evaluated by the next worker that is free."""
        state.users += 1
        self.evaluations.append(state)
