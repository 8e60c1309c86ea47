"""Profiles: what was measured is found again, by trainer and dataset."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hoptree.core.profile import ProfileEntry
from hoptree.store import Store

Open = Callable[..., Store]

VALUES = {"net": "mlp", "width": 8, "rate": 0.1, "bias": True}
ALONE = ProfileEntry(VALUES, "single", 1, "cpu", 2.0, 1 << 40, "0.1.0")
TWO = msgspec.structs.replace(ALONE, layout="data", devices=2, seconds=1.5)


def test_measurements_are_found_by_trainer_and_data_in_another_connection(open_store: Open) -> None:
    store = open_store()
    store.profiles.put("trainer", "data", [TWO, ALONE])
    other = msgspec.structs.replace(ALONE, values={}, kind="gpu")
    store.profiles.put("trainer", "data", [other])
    store.profiles.put("another", "data", [ALONE])
    found = open_store().profiles.find("trainer", "data")
    assert found.entries == (ALONE, TWO, other)
    assert [type(value) for value in found.entries[0].values.values()] == [bool, str, float, int]
    assert found.of_kind("cpu").times({**ALONE.values, "lr": 0.1}) == {1: 2.0, 2: 1.5}
    assert store.profiles.find("trainer", "other").entries == ()


def test_a_new_measurement_replaces_the_one_of_the_same_combination(open_store: Open) -> None:
    store = open_store()
    store.profiles.put("trainer", "data", [ALONE, TWO])
    again = msgspec.structs.replace(TWO, seconds=1.0, peak_bytes=7)
    store.profiles.put("trainer", "data", [again])
    assert store.profiles.find("trainer", "data").entries == (ALONE, again)


def test_an_architecture_counts_whatever_the_order_of_its_values(open_store: Open) -> None:
    store = open_store()
    store.profiles.put("trainer", "data", [ALONE])
    turned = msgspec.structs.replace(ALONE, values=dict(reversed(ALONE.values.items())), seconds=3.0)
    store.profiles.put("trainer", "data", [turned])
    assert [entry.seconds for entry in store.profiles.find("trainer", "data").entries] == [3.0]
