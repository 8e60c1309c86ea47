"""Origins: what held for a variant, entered and extended by several drivers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hoptree.store import Store
from hoptree.store.origins import OriginConflictError, OriginDamagedError, VariantOrigin

HERE = {"architecture": "x86_64"}

Open = Callable[..., Store]


def test_an_origin_is_found_by_root_and_platform(open_store: Open) -> None:
    store = open_store()
    first = VariantOrigin("v1", "root", HERE, observations={"file:/a": "1"}, probes={'{"lr": 0.1}': "2"})
    assert store.origins.add(first)
    assert store.origins.add(VariantOrigin("v2", "root", {"architecture": "arm64"}))
    assert store.origins.add(VariantOrigin("v3", "other", HERE))
    assert store.origins.add(VariantOrigin("v4", "root", HERE, 7, study="own"))
    assert [origin.variant for origin in store.origins.find("root")] == ["v1", "v2"]
    (found,) = store.origins.find("root", HERE)
    assert (found.observations, found.probes) == (first.observations, first.probes)
    assert found.created > 0
    own = store.origins.get("v4")
    assert own is not None
    assert own.study == "own"
    assert store.origins.get("v5") is None


def test_a_number_is_given_once(open_store: Open) -> None:
    store = open_store()
    assert store.origins.add(VariantOrigin("v1", "root", HERE, 0))
    assert not store.origins.add(VariantOrigin("v1", "root", HERE, 0))
    assert not store.origins.add(VariantOrigin("v2", "root", HERE, 0))
    assert store.origins.add(VariantOrigin("v2", "root", HERE, 1))


@pytest.mark.parametrize(
    ("stored", "field"),
    [
        (VariantOrigin("v1", "rood", HERE), "root"),
        (VariantOrigin("v1", "root", {"architecture": "x86_65"}), "platform"),
        (VariantOrigin("v1", "root", HERE, 4), "number"),
        (VariantOrigin("v1", "root", HERE, study="own"), "study"),
    ],
)
def test_a_record_that_is_not_what_its_name_was_made_of_is_damaged(
    open_store: Open, stored: VariantOrigin, field: str
) -> None:
    store = open_store()
    assert store.origins.add(stored)
    with pytest.raises(OriginDamagedError, match=f"the {field} of variant v1 is .*; expected .*from a backup"):
        store.origins.add(VariantOrigin("v1", "root", HERE))
    assert store.origins.get("v1") is not None


def test_contradicting_observations_are_not_added(open_store: Open) -> None:
    store = open_store()
    origin = VariantOrigin("v1", "root", HERE, observations={"file:/a": "1"})
    store.origins.add(origin)
    assert store.origins.extend(origin, {"file:/b": "2"}, {"p": "3"}).observations == {
        "file:/a": "1",
        "file:/b": "2",
    }
    with pytest.raises(OriginConflictError, match="file:/b"):
        store.origins.extend(origin, {"file:/c": "4", "file:/b": "5"}, {})
    (found,) = store.origins.find("root")
    assert (found.observations, found.probes) == ({"file:/a": "1", "file:/b": "2"}, {"p": "3"})


def test_what_several_drivers_add_is_all_there(open_store: Open) -> None:
    origin = VariantOrigin("v1", "root", HERE)
    open_store().origins.add(origin)

    def extend(number: int) -> None:
        with open_store() as store:
            for index in range(5):
                store.origins.extend(origin, {f"file:/{number}/{index}": "1"}, {})

    threads = [threading.Thread(target=extend, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found,) = open_store().origins.find("root")
    assert len(found.observations) == 15


def test_forgetting_a_study_removes_the_origins_that_no_other_one_has(open_store: Open) -> None:
    store = open_store()
    for name, variants in (("a", ["v1", "v2"]), ("b", ["v2"])):
        store.catalog.register(name, {"variants": variants})
    for number, variant in enumerate(("v1", "v2")):
        store.origins.add(VariantOrigin(variant, "root", HERE, number))
    store.forget("a")
    assert [origin.variant for origin in store.origins.find("root")] == ["v2"]
