"""The contract of a state store, as tests: an implementer gets them for one fixture.

    import pytest
    from hoptree.testing import StateStoreContract

    class TestMine(StateStoreContract):
        @pytest.fixture
        def open_states(self, tmp_path):
            return lambda: Mine(tmp_path)

The fixture is a function that opens one location, empty at the beginning, as often as it is called: every process
that uses a store opens it for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptree.store import StateDamagedError, StateFormatError, StateMissingError, StateStore
from hoptree.store.arrays import CODES
from hoptree.testing.expect import expect_error

Opener: TypeAlias = Callable[[], StateStore]

_META: dict[str, Any] = {"epoch": 3, "betas": [0.9, 0.999], "name": "é", "none": None, "nested": {"a": [True, {}]}}


class StateStoreContract:
    """The contract of every state store; a subclass defines the fixture ``open_states``."""

    writers = 4
    """How many threads write one state at the same time."""

    def test_a_state_comes_back_bit_by_bit(self, open_states: Opener) -> None:
        """Every type of array, scalars and empty arrays, NaN with its bits, in the order of their names."""
        states = open_states()
        arrays = _arrays()
        size = states.put("0abc", arrays, _META)
        found, meta = open_states().get("0abc")
        assert meta == _META, f"meta {_META} came back as {meta}"
        assert set(found) == set(arrays), f"arrays {sorted(arrays)} came back as {sorted(found)}"
        for name, array in arrays.items():
            given, back = (array.dtype, array.shape), (found[name].dtype, found[name].shape)
            assert given == back, f"array {name!r}: put as {given}, came back as {back}"
            assert array.tobytes() == found[name].tobytes(), f"array {name!r} came back with other bits"
        assert states.size("0abc") == size > 0, f"put returned {size} bytes, size says {states.size('0abc')}"

    def test_meta_keeps_numbers_that_are_not_finite(self, open_states: Opener) -> None:
        """A loss may be NaN, a bound infinite."""
        states = open_states()
        states.put("0abc", {}, {"bound": math.inf, "loss": math.nan})
        meta = states.get("0abc")[1]
        assert meta["bound"] == math.inf, f"infinity came back as {meta['bound']!r}"
        assert math.isnan(meta["loss"]), f"NaN came back as {meta['loss']!r}"

    def test_arrays_are_read_only_and_outlive_their_state(self, open_states: Opener) -> None:
        """What was read does not change when its state is replaced or deleted."""
        states = open_states()
        states.put("0abc", {"w": np.arange(1000)}, {})
        old = states.get("0abc")[0]["w"]
        assert not old.flags.writeable, "get returned an array that can be written"
        states.put("0abc", {"w": np.zeros(1000, int)}, {})
        states.delete("0abc")
        assert old.sum() == 499_500, "an array changed when its state was replaced and deleted"

    def test_arrays_are_copied_when_put_returns(self, open_states: Opener) -> None:
        """A model may keep training in the arrays that it has dumped."""
        states = open_states()
        weights = np.ones(100)
        states.put("0abc", {"w": weights}, {})
        weights[:] = 7.0
        assert states.get("0abc")[0]["w"].sum() == 100, "the state changed with the array that was put"

    def test_states_are_listed_with_their_sizes(self, open_states: Opener) -> None:
        """Sorted, whoever has written them; another handle sees them at once."""
        states, other = open_states(), open_states()
        assert (states.keys(), states.sizes()) == ([], {}), "the location is not empty at the start"
        written = {key: other.put(key, {"w": np.zeros(len(key))}, {}) for key in ("ffff", "00", "0a.b-c_d")}
        assert states.keys() == sorted(written), f"keys: {states.keys()}, expected {sorted(written)}"
        assert states.sizes() == written, f"sizes: {states.sizes()}, expected {written}"
        assert list(states.sizes()) == sorted(written), "sizes are not in the order of the keys"
        assert {key: states.size(key) for key in written} == written, "size differs from what put returned"
        assert all(key in states for key in written), "a state that was put is not contained"
        assert len({states.address(key) for key in written}) == len(written), "two states have one address"

    def test_a_deleted_state_is_gone_for_all(self, open_states: Opener) -> None:
        """Delete returns the number of bytes freed: 0 if the state does not exist."""
        states, other = open_states(), open_states()
        size = states.put("0abc", {"w": np.zeros(30)}, {})
        states.put("0abd", {"w": np.zeros(30)}, {})
        freed = other.delete("0abc")
        assert freed == size, f"delete returned {freed} for a state of {size} bytes"
        assert "0abc" not in states, "a deleted state is still contained"
        assert states.keys() == ["0abd"], f"keys after deleting 0abc: {states.keys()}"
        assert (states.delete("0abc"), states.size("0abc")) == (0, 0), "a deleted state has a size"

    def test_a_missing_state_is_an_error_of_its_own(self, open_states: Opener) -> None:
        """The caller trains it again from its nearest stored ancestor."""
        states = open_states()
        expect_error(StateMissingError, "0abc", lambda: states.get("0abc"))
        states.put("0abc", {}, {})
        states.delete("0abc")
        expect_error(StateMissingError, "0abc", lambda: states.get("0abc"))

    def test_a_state_is_replaced_at_once(self, open_states: Opener) -> None:
        """A key holds the last state that was put, and is listed once."""
        states, other = open_states(), open_states()
        states.put("0abc", {"w": np.zeros(300)}, {"put": 1})
        size = other.put("0abc", {"v": np.ones(3)}, {"put": 2})
        arrays, meta = states.get("0abc")
        assert (list(arrays), meta) == (["v"], {"put": 2}), f"after replacing: {list(arrays)}, {meta}"
        assert states.sizes() == {"0abc": size}, f"after replacing: {states.sizes()}, expected 0abc: {size}"

    def test_writers_of_one_state_leave_one_of_them_whole(self, open_states: Opener) -> None:
        """Two drivers may train one lineage: readers see one state or the other at any time, never a mixture."""
        open_states().put("0abc", {"w": np.full(20_000, 0)}, {"writer": 0})

        def write(writer: int) -> None:
            states = open_states()
            for _ in range(5):
                states.put("0abc", {"w": np.full(20_000, writer)}, {"writer": writer})

        def read(_: int) -> None:
            states = open_states()
            for _ in range(10):
                arrays, meta = states.get("0abc")
                assert (arrays["w"] == meta["writer"]).all(), "a reader found a mixture of two writers' states"

        with ThreadPoolExecutor(2 * self.writers) as pool:
            written = pool.map(write, range(1, self.writers + 1))
            seen = pool.map(read, range(self.writers))
            assert len([*written, *seen]) == 2 * self.writers
        read(0)
        states = open_states()
        assert states.keys() == ["0abc"], f"writers of one key left {states.keys()}"
        assert states.partial() == {}, f"writers that are done left {states.partial()}"

    def test_what_cannot_be_stored_leaves_nothing(self, open_states: Opener) -> None:
        """It is rejected before anything is written, and the existing state stays."""
        states = open_states()
        states.put("0abc", {"w": np.ones(3)}, {})
        bad: list[tuple[str, Any, Any]] = [
            ("0abc", {"w": np.array([object()])}, {}),
            ("0abc", {"w": np.zeros(1, complex)}, {}),
            ("0abc", {"w": [1.0]}, {}),
            ("0abc", {}, {"betas": (0.9, 0.99)}),
            ("0abc", {}, {"x": np.float64(1)}),
            ("../up", {}, {}),
            ("a/b", {}, {}),
            ("", {}, {}),
        ]
        for key, arrays, meta in bad:
            expect_error(StateFormatError, "expected", partial(states.put, key, arrays, meta))
        assert states.keys() == ["0abc"], f"what was refused left {states.keys()}"
        assert states.get("0abc")[0]["w"].sum() == 3, "what was refused changed the state of that key"
        assert states.partial() == {}, f"what was refused left {states.partial()}"

    def test_damage_is_an_error_of_its_own(self, open_states: Opener) -> None:
        """A flipped bit, a truncated file, an empty file: the state is trained again, never used."""
        states = open_states()
        arrays = {"w": np.arange(300.0), "b": np.ones(3, np.int8)}
        for kind in ("flip the last byte", "flip a byte in the middle", "cut", "empty"):
            states.put("0abc", arrays, {"epoch": 3})
            whole = self.read_bytes(states.address("0abc"))
            self.write_bytes(states.address("0abc"), _damaged(whole, kind))
            expect_error(StateDamagedError, "0abc", lambda: open_states().get("0abc"), kind)
        assert states.delete("0abc") >= 0
        assert "0abc" not in states, "a damaged state cannot be deleted"
        states.put("0abc", arrays, {})
        assert states.get("0abc")[0]["w"].sum() == arrays["w"].sum()

    def test_a_state_under_another_key_is_damage(self, open_states: Opener) -> None:
        """A file that was copied to another name is not the state of that name."""
        states = open_states()
        states.put("0abc", {"w": np.ones(3)}, {})
        states.put("0abd", {"w": np.zeros(3)}, {})
        self.write_bytes(states.address("0abd"), self.read_bytes(states.address("0abc")))
        expect_error(StateDamagedError, "0abd", lambda: open_states().get("0abd"))

    def test_markers_are_seen_by_others_and_are_no_states(self, open_states: Opener) -> None:
        """By a marker a process sees that it uses the same location as another one."""
        states, other = open_states(), open_states()
        assert not other.has_marker("driver-1"), "a marker is there that nobody has written"
        states.write_marker("driver-1")
        states.write_marker("driver-1")
        assert other.has_marker("driver-1"), "another handle does not see a marker"
        assert (other.keys(), other.partial(), other.clean()) == ([], {}, 0), "a marker counts as a state"
        states.write_marker("driver-2-b")
        states.write_marker("driver-2-a")
        assert other.markers("driver-2-") == ["driver-2-a", "driver-2-b"], f"found {other.markers('driver-2-')}"
        assert other.markers("driver-3-") == [], f"found {other.markers('driver-3-')}"
        other.remove_marker("driver-1")
        other.remove_marker("driver-1")
        assert not states.has_marker("driver-1"), "a marker is there after it was removed"
        assert states.has_marker("driver-2-a"), "removing one marker removed another one"

    def test_cleaning_leaves_whole_states(self, open_states: Opener) -> None:
        """Only files left by crashed writers are removed."""
        states = open_states()
        sizes = {key: states.put(key, {"w": np.zeros(10)}, {}) for key in ("00", "01")}
        states.write_marker("driver-1")
        assert open_states().clean() == 0, "clean removed something, though no writer crashed"
        assert states.sizes() == sizes, f"after clean: {states.sizes()}, expected {sizes}"
        assert states.has_marker("driver-1"), "clean removed a marker"

    # --- how the suite damages a state: override where an address is neither a path nor a URL of fsspec ------

    def read_bytes(self, address: str) -> bytes:
        """Return the bytes that are stored at an address."""
        if "://" not in address:
            return Path(address).read_bytes()
        import fsspec

        files, path = fsspec.core.url_to_fs(address)
        content: bytes = files.cat_file(path)
        return content

    def write_bytes(self, address: str, content: bytes) -> None:
        """Replace the bytes that are stored at an address."""
        if "://" not in address:
            path = Path(address)
            path.unlink()  # processes that have mapped the old file keep it
            path.write_bytes(content)
            return
        import fsspec

        files, remote = fsspec.core.url_to_fs(address)
        files.pipe_file(remote, content)


def _arrays() -> dict[str, np.ndarray[Any, Any]]:
    """Return an array of every type that a state may have, with arbitrary bits."""
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name in sorted(CODES):
        dtype = np.dtype(name)
        if dtype == np.bool_:
            arrays[name] = random.integers(0, 2, (3, 5)).astype(bool)
        else:
            arrays[name] = np.frombuffer(random.bytes(15 * dtype.itemsize), dtype).reshape(3, 5)
    arrays["scalar"] = np.array(-0.0)
    arrays["empty"] = np.empty((0, 4), np.int8)
    arrays["fortran"] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    arrays["every second"] = np.arange(10)[::2]
    arrays["layer.0/weight é"] = np.ones(1)
    return arrays


def _damaged(content: bytes, kind: str) -> bytes:
    at = len(content) - 1 if kind == "flip the last byte" else len(content) // 2
    match kind:
        case "cut":
            return content[: len(content) // 2]
        case "empty":
            return b""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
