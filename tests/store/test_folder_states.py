"""Files of states: whole or not there at all, and readable by others. For the contract see tests/testing."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from hoptree.store import (
    FolderStates,
    StateDamagedError,
    StateFormatError,
    StoreVersionError,
    fingerprint,
)
from hoptree.store.arrays import CODES
from tests.store.programs import PUT_FOR_EVER, PUT_TOO_MUCH, line, running, tell

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda n: n != "__metadata__"
)
DTYPES = st.sampled_from(sorted(CODES)).map(np.dtype)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


def bits(dtype: np.dtype, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """Arrays of any bits whatever: NaNs with payloads, minus zeros, denormals."""
    if dtype.name == "bool":
        return hnp.arrays(dtype, shape)
    size = math.prod(shape) * dtype.itemsize
    return st.binary(min_size=size, max_size=size).map(lambda data: np.frombuffer(data, dtype).reshape(shape))


ARRAYS = st.dictionaries(NAMES, st.tuples(DTYPES, SHAPES).flatmap(lambda both: bits(*both)), max_size=5)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
METAS = st.dictionaries(
    st.text(), st.recursive(LEAVES, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=6)
)


@pytest.fixture
def states(tmp_path):
    return FolderStates(tmp_path / "states")


def only_file(states):
    (path,) = (path for path in states.folder.rglob("*") if path.is_file())
    return path


@given(arrays=ARRAYS, meta=METAS)
@settings(max_examples=60, deadline=None)
def test_a_state_comes_back_bit_by_bit(arrays, meta):
    with tempfile.TemporaryDirectory() as folder:
        states = FolderStates(folder, durable=False)
        size = states.put("0abc", arrays, meta)
        back, back_meta = states.get("0abc")
        assert (back_meta, repr(back_meta)) == (meta, repr(meta))
        assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in back.items()} == {
            name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()
        }
        assert fingerprint(back) == fingerprint(arrays)
        assert states.sizes() == {"0abc": size} == {"0abc": only_file(states).stat().st_size}
        for array in back.values():
            assert not array.flags.writeable
            assert not array.size or array.ctypes.data % min(64, array.nbytes & -array.nbytes) == 0
        with safe_open(only_file(states), framework="np") as library:  # any other reader understands the file
            read = {name: library.get_tensor(name) for name in library.keys()}  # noqa: SIM118
        assert fingerprint(read) == fingerprint(arrays)


@given(arrays=ARRAYS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_different_states_have_different_fingerprints(arrays, data):
    other = data.draw(ARRAYS | st.just(dict(reversed(arrays.items()))))
    same = {n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in other.items()
    }
    assert (fingerprint(arrays) == fingerprint(other)) == same


def test_a_fingerprint_is_the_same_on_every_machine():
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array(True)}
    assert fingerprint(arrays) == "db23c013ad1181ed46328a5b0561f3fd9cd9d200b993d0eff7aa1213f8730782"
    swapped = {"a": arrays["a"], "b": np.asfortranarray(arrays["b"]).astype(">f4")}
    assert fingerprint(swapped) == fingerprint(arrays)
    assert fingerprint({"z": np.array(0.0)}) != fingerprint({"z": np.array(-0.0)})


@given(damage=st.data())
@settings(max_examples=80, deadline=None)
def test_any_damaged_byte_is_noticed(damage):
    with tempfile.TemporaryDirectory() as folder:
        states = FolderStates(folder, durable=False)
        states.put("0abc", {"w": np.arange(5.0), "b": np.ones(3, np.int8)}, {"epoch": 3})
        path = only_file(states)
        good = path.read_bytes()
        at = damage.draw(st.integers(0, len(good) - 1))
        match damage.draw(st.sampled_from(["flip", "cut", "grow"])):
            case "flip":
                path.write_bytes(
                    good[:at] + bytes([good[at] ^ 1 << damage.draw(st.integers(0, 7))]) + good[at + 1 :]
                )
            case "cut":
                path.write_bytes(good[:at])
            case "grow":
                path.write_bytes(good + b"\0" * (at + 1))
        with pytest.raises((StateDamagedError, StoreVersionError)) as caught:
            states.get("0abc")
        assert str(path) in str(caught.value)


def test_a_damaged_state_says_which_file_and_what_to_do(states):
    states.put("0abc", {"w": np.arange(5.0)}, {})
    path = only_file(states)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(StateDamagedError, match=r"0abc.safetensors: .* checksum .*; delete it to train"):
        states.get("0abc")
    assert states.get("0abc", verify=False)[0]["w"].shape == (5,)
    assert states.delete("0abc")
    assert "0abc" not in states


def test_a_foreign_file_and_a_wrong_key_are_detected(states):
    states.put("0abc", {"w": np.arange(5.0)}, {})
    path = only_file(states)
    path.rename(path.with_name("0abd.safetensors"))
    with pytest.raises(StateDamagedError, match="it contains the state 0abc"):
        states.get("0abd")
    safetensors.numpy.save_file({"w": np.arange(5.0)}, path)
    with pytest.raises(StateDamagedError, match="header cannot be read"):
        states.get("0abc")


def test_a_state_of_another_format_is_refused(states):
    states.put("0abc", {}, {})
    path = only_file(states)
    path.write_bytes(path.read_bytes().replace(b'"format":"1"', b'"format":"7"'))
    with pytest.raises(StoreVersionError, match="a state of format 7; this Hoptree reads format 1"):
        states.get("0abc")


@pytest.mark.parametrize("key", ["", "a", "../etc", "a/b", ".ab", "ABC", "ab\n", "a" * 201, 7])
def test_a_key_that_is_no_file_name_is_refused(states, key):
    with pytest.raises(StateFormatError, match=r"key: .*expected"):
        states.put(key, {}, {})


@pytest.mark.parametrize(
    ("arrays", "meta", "message"),
    [
        ({"w": np.array([object()])}, {}, r"arrays\['w'\]: of type object"),
        ({"w": np.zeros(1, np.complex128)}, {}, "of type complex128; expected one of"),
        ({"w": [1.0]}, {}, "a list; expected a numpy array"),
        ({"__metadata__": np.zeros(1)}, {}, "invalid name '__metadata__'"),
        ({"\ud800": np.zeros(1)}, {}, "UTF-8"),
        ({}, {"betas": (0.9, 0.99)}, r"meta\['betas'\]: a tuple; .* convert it to a list"),
        ({}, {"steps": {1: 2}}, r"meta\['steps'\]: the key 1; expected a string"),
        ({}, {"x": [np.float64(1)]}, r"meta\['x'\]\[0\]: a float64"),
        ({}, [], "meta: a list; expected a dictionary"),
    ],
)
def test_content_that_cannot_be_restored_is_refused(states, arrays, meta, message):
    with pytest.raises(StateFormatError, match=message):
        states.put("0abc", arrays, meta)
    assert not states.keys()


def test_the_header_is_plain_json(states):
    states.put("0abc", {"w": np.zeros(2)}, {"epoch": 3})
    data = only_file(states).read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(header["__metadata__"]["meta"]) == {"epoch": 3}


def test_a_writer_killed_at_any_moment_leaves_no_damaged_state(states):
    for prefix in ("aa", "bb", "cc"):
        with running(PUT_FOR_EVER, states.folder, prefix) as process:
            for number in range(4):
                assert line(process) == str(number)
        assert process.returncode == -signal.SIGKILL
    keys = states.keys()
    assert {prefix + f"{number:05}" for prefix in ("aa", "bb", "cc") for number in range(4)} <= set(keys)
    for key in keys:
        arrays, meta = states.get(key)
        assert key.endswith(f"{meta['number']:05}")
        assert (arrays["w"] == meta["number"]).all()


def test_a_writer_that_died_in_the_middle_is_cleaned_up(states):
    with running(PUT_TOO_MUCH, states.folder, "die") as process:
        assert process.wait() == -signal.SIGXFSZ
    assert only_file(states).stat().st_size == 1_000_000
    assert (states.keys(), "0abc" in states) == ([], False)
    assert states.clean() == 1_000_000
    assert not list(states.folder.rglob("*partial"))
    states.put("0abc", {"w": np.zeros(3)}, {})
    assert states.clean() == 0
    assert states.keys() == ["0abc"]


def test_a_writer_that_lives_is_left_alone(states):
    with running(PUT_TOO_MUCH, states.folder, "pause") as process:
        assert line(process) == "paused"
        assert states.clean() == 0
        assert only_file(states).stat().st_size == 1_000_000
        tell(process)
        assert "no room for the state 0abc" in line(process)


def test_a_full_disk_says_so_and_leaves_nothing(states):
    with running(PUT_TOO_MUCH, states.folder, "ignore") as process:
        assert "no room for the state 0abc of 8.0 MB (File too large); free some space" in line(process)
    assert not [path for path in states.folder.rglob("*") if path.is_file()]


def test_a_folder_that_is_removed_meanwhile_is_made_again(states, monkeypatch):
    states.put("0abc", {"w": np.zeros(2)}, {})
    made = FolderStates._make_shard

    def make_and_remove(self, shard, durable):
        made(self, shard, durable)
        if times:
            times.pop()
            shutil.rmtree(self.folder)

    monkeypatch.setattr(FolderStates, "_make_shard", make_and_remove)
    times = [1, 2, 3]
    states.put("0abc", {"w": np.ones(2)}, {})
    assert (states.get("0abc")[0]["w"] == 1).all()
    times = list(range(100))
    with pytest.raises(FileNotFoundError):
        states.put("0abc", {"w": np.ones(2)}, {})
    assert 90 < len(times) < 100


def test_importing_the_package_is_fast():
    program = (
        "import sys, hoptree.store; print([m for m in ('sqlalchemy', 'numpy', 'safetensors') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
