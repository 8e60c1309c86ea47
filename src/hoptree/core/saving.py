"""Which states are written to the store, decided from what is known of their training.

Trials end with a state that is saved. On the way, the end of an epoch is saved as often as the user says, or when
a loss of power would cost much; and one that nothing needs any more is saved on its way out, for studies to come,
if writing it is cheap beside training it again.
"""

from __future__ import annotations

from typing import final

import msgspec

from hoptree.core.actions import Action, SaveState
from hoptree.core.nodes import State

_FILE, _DISK = 5e-4, 1e9  # seconds for a file, and bytes per second: what writing takes, roughly


class SavePolicy(msgspec.Struct, frozen=True):
    """When to save: every so many epochs (0: only when much would be lost), and whether spare states are saved.

    ``at_risk`` is how many seconds of training a loss of power may cost a lineage, but for the epoch under way.
    A spare state must have taken ``worth`` times as long to train as it takes to write.
    """

    every: int = 0
    spares: bool = False
    at_risk: float = 60.0
    worth: float = 20.0


@final
class Saving:
    """Keeps account of the training that is not saved yet, by node; without a policy nothing is saved."""

    def __init__(self, partitions: int, policy: SavePolicy | None, actions: list[Action]) -> None:
        self._partitions = partitions
        self._policy = policy
        self.active = policy is not None
        self._actions = actions
        self._at_risk: dict[int, float] = {}  # seconds since a state was saved to go on from
        self._unsaved: dict[int, float] = {}  # seconds since any state was saved

    def trained(self, state: State, seconds: float) -> bool:
        """Take in a unit; return whether the state after it is to be saved, and kept to go on from."""
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
        """Have the state saved that a trial ended with."""
        if self._policy is not None:
            self._save(state)

    def dropped(self, state: State) -> None:
        """Have a state saved on its way out, if that is worth it: only shared ends of epochs are found again."""
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
