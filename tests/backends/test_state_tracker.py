"""States are saved in the background, and no slot is freed while it is read."""

from __future__ import annotations

import resource
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import pytest

from hoptree.backends.state_tracker import PlaceId, StateLocation, StateTracker
from hoptree.store import FolderStates, StoreFullError
from hoptree.worker.model_cache import LostStateError
from hoptree.worker.slots import SlotReader, SlotWriter


class Fixture:
    def __init__(self, folder: Path) -> None:
        self.freed: list[str] = []
        self.states = FolderStates(folder / "states")
        (folder / "slots").mkdir()
        self.writer = SlotWriter([folder / "slots"], "me")
        self.ledger: list[str] = []
        self.lost: set[str] = set()
        self.reader = SlotReader()
        self.tracker = StateTracker(self.states, self, self)

    def find_leftovers(self) -> dict[str, str]:
        return {}

    def write(self, location: StateLocation) -> None:
        if location.key in self.lost:
            raise LostStateError(location.key)
        header, arrays = self.reader.read(location.slot)
        self.states.put(location.key, arrays, header.meta)

    def free(self, location: StateLocation) -> None:
        self.freed.append(location.key)

    def saved(self, key: str, size: int, seconds: float) -> None:
        self.ledger.append(key)

    def has_room(self, size: int) -> bool:
        return True

    def dropped(self, key: str) -> None:
        self.ledger.remove(key)

    def put(self, unit: int, key: str, size: int = 10) -> None:
        slot = self.writer.write(key, {"w": np.full(size, float(unit))}, {})
        self.tracker.put((0, unit), StateLocation(key, slot, "me", size))


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def test_a_state_is_saved_in_the_background_and_the_waiter_is_notified(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.tracker.save((0, 1))
    fixture.tracker.save((0, 1))  # asked for twice, written once
    assert wait([fixture.tracker.source], timeout=900)
    assert fixture.tracker.take_results() == ([(0, 1)], [])
    assert fixture.tracker.take_results() == ([], [])
    assert fixture.states.get("aa")[0]["w"][0] == 1.0
    assert fixture.ledger == ["aa"]
    fixture.tracker.drop((0, 1))
    assert fixture.freed == ["aa"]
    assert fixture.ledger == []
    fixture.tracker.close()


def test_a_state_dropped_while_it_is_saved_is_freed_afterwards(fixture: Fixture) -> None:
    for unit in range(1, 30):
        fixture.put(unit, f"k{unit}", size=100_000)
        fixture.tracker.save((0, unit))
        fixture.tracker.drop((0, unit))
    fixture.tracker.close()
    assert sorted(fixture.freed) == sorted(f"k{unit}" for unit in range(1, 30))
    assert fixture.ledger == []


def test_a_state_made_twice_takes_the_place_of_the_first(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.put(1, "aa")
    assert fixture.freed == ["aa"]
    fixture.tracker.close()


def test_closing_waits_for_what_is_being_saved(fixture: Fixture) -> None:
    for unit in range(1, 9):
        fixture.put(unit, f"k{unit}", size=100_000)
        fixture.tracker.save((0, unit))
    fixture.tracker.close()
    assert len(fixture.states.keys()) == 8


def test_a_full_disk_is_an_error_for_the_waiter(fixture: Fixture) -> None:
    fixture.put(1, "aa", size=100_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        fixture.tracker.save((0, 1))
        with pytest.raises(StoreFullError, match="no room for the state aa"):
            fixture.tracker.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_state_that_is_lost_before_it_is_saved_is_reported_and_freed(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.put(2, "bb")
    fixture.lost = {"aa"}
    fixture.tracker.save((0, 1))
    fixture.tracker.save((0, 2))
    saved: list[PlaceId] = []
    lost: list[PlaceId] = []
    while len(saved) + len(lost) < 2:
        assert wait([fixture.tracker.source], timeout=900)
        more, missing = fixture.tracker.take_results()
        saved, lost = saved + more, lost + missing
    assert (saved, lost) == ([(0, 2)], [(0, 1)])
    assert fixture.tracker.find((0, 1)) is None
    assert fixture.freed == ["aa"]
    fixture.put(3, "cc")
    fixture.lost = {"cc"}
    fixture.tracker.save((0, 3))
    fixture.tracker.close()  # at the end it is not saved, without an error
    assert fixture.ledger == ["bb"]


def test_the_slot_of_a_lost_state_is_freed(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.tracker.lose((0, 1))
    assert fixture.freed == ["aa"]
    fixture.put(2, "bb")
    fixture.tracker.save((0, 2))
    fixture.tracker.lose((0, 2))  # while it is being saved: not before that is done
    fixture.tracker.close()
    assert fixture.freed == ["aa", "bb"]
    assert fixture.ledger == []


def test_a_state_made_again_while_the_first_is_saved_frees_the_first(fixture: Fixture) -> None:
    fixture.put(1, "aa", size=1_000_000)
    fixture.tracker.save((0, 1))
    fixture.put(1, "aa")
    fixture.tracker.close()
    assert fixture.freed == ["aa"]
    assert fixture.ledger == ["aa"]
    assert fixture.tracker.find((0, 1)) is not None
