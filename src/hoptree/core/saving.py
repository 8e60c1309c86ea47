"""Which states are written to the store.

The final state of a trial is always saved. States at the end of an epoch are saved as often as the user wants, or
when a crash would lose much training. A state that nothing needs any more is saved before it is dropped, for future
studies, if writing it is cheap compared to training it again.
"""

from __future__ import annotations

from typing import final

import msgspec

from hoptree.core.actions import Action, SaveState
from hoptree.core.nodes import State

_FILE, _DISK = 5e-4, 1e9  # rough cost of writing: seconds per file, and bytes per second


class SavePolicy(msgspec.Struct, frozen=True):
    """When to save: ``every`` so many epochs (0: only when much would be lost), and whether to save spare states.

    ``at_risk`` is how many seconds of training a crash may cost a lineage, besides the epoch under way. A spare
    state is saved if it took ``worth`` times as long to train as it takes to write.
    """

    every: int = 0
    spares: bool = False
    at_risk: float = 60.0
    worth: float = 20.0


@final
class Saving:
    """Counts the training that is not saved yet, by node; without a policy nothing is saved."""

    def __init__(self, partitions: int, policy: SavePolicy | None, actions: list[Action]) -> None:
        self._partitions = partitions
        self._policy = policy
        self.active = policy is not None
        self._actions = actions
        self._at_risk: dict[int, float] = {}  # seconds of training since a kept state was saved
        self._unsaved: dict[int, float] = {}  # seconds of training since any state was saved

    def trained(self, state: State, seconds: float) -> bool:
        """Count a trained unit; return whether the state after it was ordered to be saved and kept."""
        policy, node = self._policy, state.node
        if policy is None:
            return False
        before = self._at_risk.get(node.parent.id, 0.0) if node.parent is not None else 0.0
        self._at_risk[node.id] = self._at_risk.get(node.id, before) + seconds
        self._unsaved[node.id] = self._unsaved.get(node.id, 0.0) + seconds
        epoch, inside = divmod(state.unit, self._partitions)
        due = bool(policy.every) and epoch % policy.every == 0
        if inside or not (due or self._at_risk[node.id] >= policy.at_risk):
            return False
        self._save(state, keep=True)
        self._at_risk[node.id] = 0.0
        return True

    def ended(self, state: State) -> None:
        """Order to save the final state of a trial."""
        if self._policy is not None:
            self._save(state)

    def dropped(self, state: State) -> None:
        """Order to save a state before it is dropped, if worth it; only shared ends of epochs are reused."""
        policy, node = self._policy, state.node
        if policy is None or not policy.spares or state.unit % self._partitions or node.is_private:
            return
        if self._unsaved.get(node.id, 0.0) >= policy.worth * (_FILE + state.size / _DISK):
            self._save(state, durable=False)
            self._unsaved[node.id] = 0.0

    def _save(self, state: State, *, keep: bool = False, durable: bool = True) -> None:
        number = state.node.id
        seconds = self._at_risk.get(number, 0.0) if durable else self._unsaved.get(number, 0.0)
        self._actions.append(SaveState(number, state.unit, state.key, seconds, keep, durable))
