"""Slots carry states between processes: whole or not at all, used again, on disk when memory is small."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hoptree.worker.slots import NoRoomError, SlotDamagedError, SlotReader, SlotWriter, find_states

ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "none": np.empty((0, 4), np.int64),
    "one": np.array(7, np.int8),
    "across": np.arange(12, dtype=np.float64).reshape(3, 4).T,
}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    slot = SlotWriter([tmp_path], "me").write("key", ARRAYS, {"units": 3})
    header, arrays = SlotReader().read(slot)
    assert (header.key, header.meta) == ("key", {"units": 3})
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)


def test_a_slot_that_is_free_is_used_again(tmp_path: Path) -> None:
    writer, reader = SlotWriter([tmp_path], "me"), SlotReader()
    first = writer.write("a", ARRAYS, {})
    second = writer.write("b", ARRAYS, {})
    assert first != second
    assert writer.find("a") == first
    writer.free(first)
    assert writer.find("a") == ""
    assert writer.write("c", ARRAYS, {}) == first
    assert reader.read(first)[0].key == "c"
    writer.free("somebody else's")
    large = {"w": np.zeros(1 << 16)}
    writer.free(second)
    assert writer.write("d", large, {}) not in (first, second)


def test_slots_of_an_ended_writer_are_found_unless_incomplete(tmp_path: Path) -> None:
    writer = SlotWriter([tmp_path / "a", tmp_path / "b"], "me")
    (tmp_path / "a").mkdir()
    whole, half = writer.write("whole", ARRAYS, {}), writer.write("half", ARRAYS, {})
    with Path(half).open("r+b") as file:
        file.write(bytes(8))
    (tmp_path / "a" / "empty").touch()
    (tmp_path / "a" / "short").write_bytes(b"\x01" * 20)
    (tmp_path / "a" / "nonsense").write_bytes(b"\x01" + bytes(7) + b"\xc1" * 1000)
    assert find_states([tmp_path / "a", tmp_path / "b"]) == {"whole": whole}


@pytest.mark.parametrize("place", ["length", "checksum", "used", "header", "key", "array", "last"])
def test_a_slot_in_which_a_bit_has_changed_is_refused(tmp_path: Path, place: str) -> None:
    path = Path(SlotWriter([tmp_path], "me").write("key", ARRAYS, {"units": 3}))
    content = bytearray(path.read_bytes())
    used = int.from_bytes(content[16:24], "little")
    at = {"length": 0, "checksum": 8, "used": 16, "header": 24, "key": content.index(b"key")}
    at |= {"array": content.index(ARRAYS["w"].tobytes()) + 5, "last": used - 1}
    content[at[place]] ^= 4
    path.write_bytes(content)
    with pytest.raises(SlotDamagedError):
        SlotReader().read(str(path))


@pytest.mark.parametrize("size", [1, 10, 30, 200])
def test_a_slot_that_was_cut_is_refused_also_when_it_is_mapped(tmp_path: Path, size: int) -> None:
    reader = SlotReader()
    path = SlotWriter([tmp_path], "me").write("key", ARRAYS, {})
    reader.read(path)
    os.truncate(path, size)
    for each in (reader, SlotReader()):
        with pytest.raises(SlotDamagedError):
            each.read(path)
    assert find_states([tmp_path]) == {}


def test_a_removed_slot_is_not_used_again(tmp_path: Path) -> None:
    writer = SlotWriter([tmp_path / "slots"], "me")
    first = writer.write("a", ARRAYS, {})
    shutil.rmtree(tmp_path / "slots")
    writer.free(first)
    second = writer.write("b", ARRAYS, {})
    assert SlotReader().read(second)[0].key == "b"


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_error_for_a_state_that_does_not_fit_shows_its_size(tmp_path: Path) -> None:
    writer = SlotWriter([tmp_path], "me")
    with no_file_larger_than(1 << 16), pytest.raises(NoRoomError, match=r"no room for a state of 0.9 MB") as caught:
        writer.write("large", {"w": np.zeros(100_000)}, {})
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


SMALL_MEMORY = """
import sys
from pathlib import Path
import numpy as np
from hoptree.worker.slots import SlotReader, SlotWriter
memory, disk = Path(sys.argv[1]), Path(sys.argv[2])
writer = SlotWriter([memory, disk], "me")
small, large = writer.write("small", {"w": np.zeros(9)}, {}), writer.write("large", {"w": np.ones(1 << 18)}, {})
assert (Path(small).parent, Path(large).parent) == (memory, disk), (small, large)
assert SlotReader().read(large)[1]["w"].sum() == 1 << 18
"""


def test_states_that_do_not_fit_into_shared_memory_go_to_disk(tmp_path: Path) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$3" -c "$4" "$1" "$2"'
    script = ["sh", "-c", mount, "sh", str(memory), str(disk), sys.executable, SMALL_MEMORY]
    subprocess.run(["unshare", "--user", "--map-root-user", "--mount", *script], check=True)
