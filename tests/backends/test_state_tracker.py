"""The shelf saves behind, and frees no slot that is being read."""

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
        self.books: list[str] = []
        self.gone: set[str] = set()
        self.reader = SlotReader()
        self.shelf = StateTracker(self.states, self, self)

    def left(self) -> dict[str, str]:
        return {}

    def write(self, stored: StateLocation) -> None:
        if stored.key in self.gone:
            raise LostStateError(stored.key)
        header, arrays = self.reader.read(stored.slot)
        self.states.put(stored.key, arrays, header.meta)

    def free(self, stored: StateLocation) -> None:
        self.freed.append(stored.key)

    def saved(self, key: str, size: int, seconds: float) -> None:
        self.books.append(key)

    def has_room(self, size: int) -> bool:
        return True

    def dropped(self, key: str) -> None:
        self.books.remove(key)

    def put(self, unit: int, key: str, size: int = 10) -> None:
        slot = self.writer.write(key, {"w": np.full(size, float(unit))}, {})
        self.shelf.put((0, unit), StateLocation(key, slot, "me", size))


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def test_a_state_is_saved_behind_and_the_doorbell_rings(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.shelf.save((0, 1))
    fixture.shelf.save((0, 1))  # asked for twice, written once
    assert wait([fixture.shelf.doorbell], timeout=900)
    assert fixture.shelf.saved() == ([(0, 1)], [])
    assert fixture.shelf.saved() == ([], [])
    assert fixture.states.get("aa")[0]["w"][0] == 1.0
    assert fixture.books == ["aa"]
    fixture.shelf.drop((0, 1))
    assert fixture.freed == ["aa"]
    assert fixture.books == []
    fixture.shelf.close()


def test_what_is_dropped_while_it_is_saved_is_freed_afterwards(fixture: Fixture) -> None:
    for unit in range(1, 30):
        fixture.put(unit, f"k{unit}", size=100_000)
        fixture.shelf.save((0, unit))
        fixture.shelf.drop((0, unit))
    fixture.shelf.close()
    assert sorted(fixture.freed) == sorted(f"k{unit}" for unit in range(1, 30))
    assert fixture.books == []


def test_a_state_made_twice_takes_the_place_of_the_first(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.put(1, "aa")
    assert fixture.freed == ["aa"]
    fixture.shelf.close()


def test_closing_waits_for_what_is_being_saved(fixture: Fixture) -> None:
    for unit in range(1, 9):
        fixture.put(unit, f"k{unit}", size=100_000)
        fixture.shelf.save((0, unit))
    fixture.shelf.close()
    assert len(fixture.states.keys()) == 8


def test_a_full_disk_is_told_to_whoever_waits(fixture: Fixture) -> None:
    fixture.put(1, "aa", size=100_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        fixture.shelf.save((0, 1))
        with pytest.raises(StoreFullError, match="no room for the state aa"):
            fixture.shelf.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_state_that_is_lost_before_it_is_saved_is_told_and_freed(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.put(2, "bb")
    fixture.gone = {"aa"}
    fixture.shelf.save((0, 1))
    fixture.shelf.save((0, 2))
    saved: list[PlaceId] = []
    lost: list[PlaceId] = []
    while len(saved) + len(lost) < 2:
        assert wait([fixture.shelf.doorbell], timeout=900)
        more, gone = fixture.shelf.saved()
        saved, lost = saved + more, lost + gone
    assert (saved, lost) == ([(0, 2)], [(0, 1)])
    assert fixture.shelf.find((0, 1)) is None
    assert fixture.freed == ["aa"]
    fixture.put(3, "cc")
    fixture.gone = {"cc"}
    fixture.shelf.save((0, 3))
    fixture.shelf.close()  # at the end it is not saved, and that is all
    assert fixture.books == ["bb"]


def test_where_a_lost_state_lay_is_freed(fixture: Fixture) -> None:
    fixture.put(1, "aa")
    fixture.shelf.lose((0, 1))
    assert fixture.freed == ["aa"]
    fixture.put(2, "bb")
    fixture.shelf.save((0, 2))
    fixture.shelf.lose((0, 2))  # while it is being saved: not before that is done
    fixture.shelf.close()
    assert fixture.freed == ["aa", "bb"]
    assert fixture.books == []


def test_a_state_made_again_while_the_first_is_saved_frees_the_first(fixture: Fixture) -> None:
    fixture.put(1, "aa", size=1_000_000)
    fixture.shelf.save((0, 1))
    fixture.put(1, "aa")
    fixture.shelf.close()
    assert fixture.freed == ["aa"]
    assert fixture.books == ["aa"]
    assert fixture.shelf.find((0, 1)) is not None
