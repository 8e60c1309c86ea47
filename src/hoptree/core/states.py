"""Which states are stored, who uses them, and which are dropped when nobody does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import final

from hoptree.core.actions import Action, AdoptState, DropState
from hoptree.core.nodes import Node, State
from hoptree.core.saving import Saving
from hoptree.core.trial import Trial


@final
class StateRegistry:
    """Counts the users of every state: lineages, evaluations, trials that ended with it, and the store."""

    def __init__(self, actions: list[Action], saving: Saving) -> None:
        self._actions = actions
        self._saving = saving
        self.evaluations: deque[State] = deque()  # states whose metrics are due and not being computed

    def store(self, node: Node, unit: int, home: str, order: int = 0, size: int = 0) -> State:
        """Note that a state has come; one that was lost and is still in use has come back. Its maker uses it.

        One that was found in the store meanwhile is the same state, made twice.
        """
        state = node.states.get(unit) or node.lost.pop(unit, None)
        if state is None:
            state = State(node, unit, home, order, size)
        else:
            state.home, state.order, state.size, state.saved = home, order, size, False
        node.states[unit] = state
        state.users += 1
        self._finish(state)
        return state

    def adopt(self, node: Node, unit: int, *, keep: bool) -> State:
        """Count a state that the store holds; without ``keep`` it stays only while something uses it."""
        state = node.lost.pop(unit, None)
        if state is None:
            state = State(node, unit, "")
        state.home, state.saved = "", True
        node.states[unit] = state
        self._actions.append(AdoptState(node.id, unit, keep))
        if keep:
            self.keep(state)
        self._finish(state)
        return state

    def _finish(self, state: State) -> None:
        """Let trials that have ended with a state hold it, now that it is there."""
        finals = state.node.finals.get(state.unit, ())
        for trial in finals:
            trial.lost_state = False
            self.pin(trial, state)
        if finals:
            self._saving.ended(state)

    def trained(self, state: State, seconds: float) -> None:
        """Have a state saved and kept if it is time, for trials that are on their way."""
        if self._saving.active and state.node.live and self._saving.trained(state, seconds):
            self.keep(state)

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
            self._saving.dropped(state)
            self._actions.append(DropState(state.node.id, state.unit, state.node.key, state.node.tree))
        else:
            state.node.lost.pop(state.unit, None)

    def pin(self, trial: Trial, state: State | None) -> None:
        """Keep the state that a trial ended with, and let go of the one kept before."""
        old, trial.pinned = trial.pinned, state
        if state is not None:
            state.users += 1
        if old is not None:
            self.release(old)

    def save_again(self, trials: Iterable[Trial]) -> None:
        """Have the states saved that trials have ended with and that are not known to be in the store."""
        pinned = [trial.pinned for trial in trials if trial.pinned is not None and not trial.pinned.saved]
        for state in dict.fromkeys(pinned):
            self._saving.ended(state)

    def end_with(self, trial: Trial, state: State | None) -> None:
        """Let a trial hold the state that it ended with, and have it saved."""
        self.pin(trial, state)
        if state is not None:
            self._saving.ended(state)

    def evaluate_later(self, state: State) -> None:
        """Have a state evaluated by the next worker that is free."""
        state.users += 1
        self.evaluations.append(state)
