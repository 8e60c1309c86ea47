"""The ledger in both databases: what goes when the disk is full, and what stays."""

from __future__ import annotations

import numpy as np

from hoptree.store import Store


def put(store: Store, number: int, *, held: bool, seconds: float = 1.0, there: bool = True) -> str:
    key = f"{number:032x}"
    if there:
        store.states.put(key, {"w": np.zeros(4)}, {})
    store.ledger.enter(key, "study", 100, seconds)
    if not held:
        store.ledger.release([key], "study")
    return key


def test_held_states_stay_even_beyond_the_budget(store: Store) -> None:
    held = [put(store, number, held=True) for number in range(3)]
    assert store.ledger.evict(0) == []
    cheap, dear = put(store, 3, held=False), put(store, 4, held=False, seconds=9.0)
    assert [record.key for record in store.ledger.evict(400)] == [cheap]
    assert [record.key for record in store.ledger.evict(0)] == [dear]
    assert store.states.keys() == held


def test_a_removed_state_is_removed_from_the_ledger(store: Store) -> None:
    lost = put(store, 0, held=False, seconds=0.1, there=False)
    kept = put(store, 1, held=False)
    assert store.ledger.evict(100) == []
    assert store.states.keys() == [kept]
    store.states.put(lost, {"w": np.zeros(4)}, {})
    assert [record.key for record in store.ledger.all()] == [kept]
