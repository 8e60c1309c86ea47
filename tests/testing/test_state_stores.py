"""Folders and object stores keep the contract of a state store, and the suite finds what breaks it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoptree.store import FolderStates, StateMissingError, StateStore, open_states
from hoptree.testing import StateStoreContract, check
from tests.object_store import object_store, surroundings


class TestFolder(StateStoreContract):
    @pytest.fixture(params=[True, False], ids=["durable", "not durable"])
    def open_states(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StateStore]:
        return lambda: open_states(tmp_path / "states", request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with object_store() as address:
        yield address


class TestObjectStore(StateStoreContract):
    writers = 2

    @pytest.fixture
    def open_states(self, server: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], StateStore]:
        for name, value in surroundings(server).items():
            monkeypatch.setenv(name, value)
        url = f"s3://hoptree/{secrets.token_hex(4)}"
        return lambda: open_states(url)


class Faulty:
    """A folder with a fault in it."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.states = FolderStates(folder, durable=False)
        self.fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self.states, name)

    def __contains__(self, key: str) -> bool:
        return key in self.states

    def put(self, key: str, arrays: Any, meta: Any, *, durable: bool = True) -> int:
        if self.fault == "changes types":
            wide = [name for name, array in arrays.items() if getattr(array, "dtype", None) == np.float64]
            arrays = arrays | {name: arrays[name].view(np.int64) for name in wide}
        if self.fault == "keeps the first" and key in self.states:
            return self.states.size(key)
        return self.states.put(key, arrays, meta) + (self.fault == "wrong size")

    def get(self, key: str, verify: bool = True) -> Any:
        try:
            arrays, meta = self.states.get(key, verify and self.fault != "trusts")
        except StateMissingError:
            if self.fault == "invents":
                return {}, {}
            raise
        if self.fault == "writable":
            arrays = {name: array.copy() for name, array in arrays.items()}
        return arrays, meta

    def delete(self, key: str) -> int:
        freed = self.states.delete(key)
        return 1 if self.fault == "frees what is not there" else freed

    def keys(self) -> list[str]:
        return self.states.keys()[::-1] if self.fault == "no order" else self.states.keys()

    def remove_marker(self, name: str) -> None:
        if self.fault != "markers stay":
            self.states.remove_marker(name)

    def clean(self) -> int:
        if self.fault == "cleans too much":
            for path in self.states.folder.rglob("*.safetensors"):
                path.unlink()
        return self.states.clean()


def run(folder: Path, fault: str) -> None:
    count = iter(range(1000))

    def make() -> Callable[[], Faulty]:
        place = folder / str(next(count))
        return lambda: Faulty(place, fault)

    check(StateStoreContract, make)


def test_a_sound_store_passes(tmp_path: Path) -> None:
    run(tmp_path, "none")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("changes types", "came back as"),
        ("keeps the first", "after replacing|with other bits|mixture"),
        ("wrong size", "bytes"),
        ("trusts", "expected StateDamagedError"),
        ("invents", "expected StateMissingError"),
        ("writable", "can be written"),
        ("frees what is not there", "delete returned|has a size"),
        ("no order", "keys"),
        ("markers stay", "after it was removed"),
        ("cleans too much", "after clean"),
    ],
)
def test_seeded_faults_are_found(tmp_path: Path, fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(tmp_path, fault)
