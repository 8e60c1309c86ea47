"""Stored states and their users; a state without users is dropped."""

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
    """Counts the users of every state: active lineages, evaluations, complete trials, and the store."""

    def __init__(self, actions: list[Action], saving: Saving) -> None:
        self._actions = actions
        self._saving = saving
        self.evaluations: deque[State] = deque()  # states that wait for a worker to evaluate them

    def store(self, node: Node, unit: int, home: str, order: int = 0, size: int = 0) -> State:
        """Record a trained state; the lineage that made it is its first user.

        If it was lost and is still in use, or was found in the store meanwhile, it is the same state.
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
        """Record a state that the store holds; without ``keep`` it stays only while something uses it."""
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
        """Make the complete trials whose final state this is its users, and have it saved."""
        finals = state.node.finals.get(state.unit, ())
        for trial in finals:
            trial.lost_state = False
            self.pin(trial, state)
        if finals:
            self._saving.ended(state)

    def trained(self, state: State, seconds: float) -> None:
        """Have a state saved and kept if it is due, while running trials pass its node."""
        if self._saving.active and state.node.live and self._saving.trained(state, seconds):
            self.keep(state)

    def lose(self, state: State) -> None:
        """Record the loss of a state; it may be stored again while it has users."""
        del state.node.states[state.unit]
        state.node.lost[state.unit] = state
        self.let_go(state)

    def keep(self, state: State) -> None:
        """Make the store a user of a state."""
        if not state.kept:
            state.kept = True
            state.users += 1

    def let_go(self, state: State) -> None:
        """Remove the store from the users of a state."""
        if state.kept:
            state.kept = False
            self.release(state)

    def release(self, state: State) -> None:
        """Remove one user; drop the state if it was the last."""
        state.users -= 1
        if state.users:
            return
        if state.node.states.pop(state.unit, None) is not None:
            self._saving.dropped(state)
            self._actions.append(DropState(state.node.id, state.unit, state.node.key, state.node.tree))
        else:
            state.node.lost.pop(state.unit, None)

    def pin(self, trial: Trial, state: State | None) -> None:
        """Make a trial the user of its final state, and release the previous one."""
        old, trial.pinned = trial.pinned, state
        if state is not None:
            state.users += 1
        if old is not None:
            self.release(old)

    def save_again(self, trials: Iterable[Trial]) -> None:
        """Have the final states of trials saved that are not known to be in the store."""
        pinned = [trial.pinned for trial in trials if trial.pinned is not None and not trial.pinned.saved]
        for state in dict.fromkeys(pinned):
            self._saving.ended(state)

    def end_with(self, trial: Trial, state: State | None) -> None:
        """Make a trial the user of its final state, and have it saved."""
        self.pin(trial, state)
        if state is not None:
            self._saving.ended(state)

    def evaluate_later(self, state: State) -> None:
        """Queue a state for evaluation by the next free worker."""
        state.users += 1
        self.evaluations.append(state)
