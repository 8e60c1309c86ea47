"""Slots: states in shared memory, so that a hop is one copy out and one copy in.

A slot is a file in shared memory: three numbers, a header (where each array lies, and the JSON beside the arrays)
and the arrays, aligned to 64 bytes. The numbers are the header's length, which is 0 until all is there, a checksum
(xxh3, 64 bits) of all that follows it, and how many bytes are used. Whoever reads a slot compares the checksum
first: a slot that was damaged is never loaded.

A worker writes into slots of its own that it uses again and again: pages that are mapped already cost no page
fault. Others map a slot once and keep the mapping. The files belong to the study's folders, not to a process: they
outlive a worker that dies, and even the driver. Where shared memory is small (containers often have 64 MB), slots
that do not fit are files on disk, in the page cache.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

if TYPE_CHECKING:
    import numpy as np

_ALIGN = 64
_CHECKED = 16  # bytes that the checksum does not cover: the header's length, and the checksum
_HEADER = 24  # bytes before the header
_PAGE = 1 << 16
_MAPPED = 64  # slots of others that stay mapped
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)
_POPULATE_READ = 22  # madvise: map all pages now, for reading (Linux 5.14 and later)


class SlotArray(msgspec.Struct, frozen=True, array_like=True):
    """Where one array lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class SlotHeader(msgspec.Struct, frozen=True, array_like=True):
    """What a slot holds: the key of its state, the arrays, and the JSON beside them."""

    key: str
    fields: tuple[SlotArray, ...]
    meta: dict[str, Any]


_ENCODE = msgspec.msgpack.Encoder()
_DECODE = msgspec.msgpack.Decoder(SlotHeader)
_NUMBERS = struct.Struct("<QQQ")  # the header's length, the checksum, the bytes that are used
_EMPTY = bytes(8)


@final
class SlotWriter:
    """A worker's own slots, in the first of the folders that has room; ``free`` makes one available again."""

    def __init__(self, folders: Sequence[Path], owner: str) -> None:
        self._folders = folders
        self._owner = owner
        self._count = 0
        self._maps: dict[str, mmap.mmap] = {}
        self._idle: list[str] = []
        self._keys: dict[str, str] = {}

    def write(self, key: str, arrays: Mapping[str, np.ndarray[Any, Any]], meta: dict[str, Any]) -> str:
        """Copy a state into a slot and return the slot's path."""
        import numpy as np

        fields: list[SlotArray] = []
        offset = 0
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        for name, array in contiguous.items():
            shape = arrays[name].shape  # numpy makes a scalar contiguous by giving it a dimension
            fields.append(SlotArray(name, array.dtype.str, shape, offset, array.nbytes))
            offset += -(-array.nbytes // _ALIGN) * _ALIGN
        header = _ENCODE.encode(SlotHeader(key, tuple(fields), meta))
        begin = _begin(len(header))
        name, slot = self._take(begin + offset)
        slot[: len(_EMPTY)] = _EMPTY  # until all is there: a writer may die at any moment
        slot[_HEADER : _HEADER + len(header)] = header
        for field, array in zip(fields, contiguous.values(), strict=True):
            target = np.frombuffer(slot, np.uint8, field.size, begin + field.offset)
            target[:] = array.reshape(-1).view(np.uint8)
        _NUMBERS.pack_into(slot, 0, 0, 0, begin + offset)
        _NUMBERS.pack_into(slot, 0, len(header), _checksum(slot, begin + offset), begin + offset)
        self._keys[key] = name
        return name

    def find(self, key: str) -> str:
        """Return the slot in which this worker has written a state, if it is still there."""
        return self._keys.get(key, "")

    def free(self, name: str) -> None:
        """Take a slot back; a name that is not ours is ignored."""
        if name in self._maps and name not in self._idle:
            self._idle.append(name)
            self._keys = {key: slot for key, slot in self._keys.items() if slot != name}

    def _take(self, size: int) -> tuple[str, mmap.mmap]:
        for name in [name for name in self._idle if len(self._maps[name]) >= size]:
            self._idle.remove(name)
            if os.path.exists(name):
                return name, self._maps[name]
            del self._maps[name]  # somebody has removed the file: nobody else would find what is written there
        length = -(-size // _PAGE) * _PAGE
        *roomy, last = self._folders
        for folder in roomy:
            with suppress(NoRoomError):
                return self._make(folder, length)
        return self._make(last, length)

    def _make(self, folder: Path, length: int) -> tuple[str, mmap.mmap]:
        path = folder / f"{self._owner}-{self._count}"
        self._count += 1
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been removed
            self._maps[str(path)] = slot = _allocate(path, length)
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno in _NO_ROOM:
                raise NoRoomError(
                    error.errno, f"no room for a state of {length / 1e6:.1f} MB in {folder}"
                ) from error
            raise
        return str(path), slot


class NoRoomError(OSError):
    """A state fits nowhere."""


class SlotDamagedError(Exception):
    """A slot does not hold what was written to it; its state is lost."""


def _allocate(path: Path, length: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, length)  # a full memory is an error here, not a signal later
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)


@final
class SlotReader:
    """Slots of anybody, each mapped once."""

    def __init__(self) -> None:
        self._maps: dict[str, mmap.mmap] = {}

    def map(self, path: str) -> mmap.mmap:
        """Map a slot with all its pages, so that reading it later costs no page fault."""
        slot = self._maps.get(path)
        if slot is None:
            with open(path, "rb") as file:
                slot = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with suppress(OSError, ValueError):  # an older kernel: pages come as they are read
                slot.madvise(_POPULATE_READ)
            self._maps[path] = slot
            if len(self._maps) > _MAPPED:  # the memory of one whose file is gone is freed with its last view
                del self._maps[next(iter(self._maps))]
        return slot

    def read(self, path: str) -> tuple[SlotHeader, dict[str, np.ndarray[Any, Any]]]:
        """Return what a slot holds, if it is what was written; the arrays are views into the slot.

        They change when the slot is used again.
        """
        import numpy as np

        slot = self.map(path)
        with suppress(FileNotFoundError):  # what is mapped can be read on
            if os.stat(path).st_size < len(slot):  # the system ends who reads beyond the end of a file
                del self._maps[path]
                raise SlotDamagedError(f"{path}: it has been cut to {os.stat(path).st_size} bytes")
        header, begin = _checked(path, slot)
        arrays = {
            field.name: np.frombuffer(slot, np.uint8, field.size, begin + field.offset)
            .view(np.dtype(field.dtype))
            .reshape(field.shape)
            for field in header.fields
        }
        return header, arrays


def _checked(path: str, slot: mmap.mmap) -> tuple[SlotHeader, int]:
    """Return a slot's header and where its arrays begin; refuse a slot that is not as it was written."""
    if len(slot) < _HEADER:
        raise SlotDamagedError(f"{path}: it has {len(slot)} bytes only")
    length, checksum, used = _NUMBERS.unpack_from(slot)
    if not 0 < _begin(length) <= used <= len(slot) or not length:
        raise SlotDamagedError(f"{path}: no whole state is in it")
    if _checksum(slot, used) != checksum:
        raise SlotDamagedError(f"{path}: its bytes do not fit their checksum")
    try:
        return _DECODE.decode(slot[_HEADER : _HEADER + length]), _begin(length)
    except (msgspec.DecodeError, ValueError) as error:
        raise SlotDamagedError(f"{path}: its header cannot be read: {error}") from error


def _checksum(slot: mmap.mmap, used: int) -> int:
    import xxhash

    with memoryview(slot) as whole, whole[_CHECKED:used] as part:
        return xxhash.xxh3_64_intdigest(part)


def find_states(folders: Sequence[Path]) -> dict[str, str]:
    """Return the slots that hold a whole state, by the state's key; half-written and damaged ones are left out.

    Those of a driver that runs may go meanwhile. Checksums are compared when a slot is read.
    """
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(OSError, ValueError, struct.error, msgspec.DecodeError), path.open("rb") as file:
                length, _, used = _NUMBERS.unpack(file.read(_HEADER))
                if length and _begin(length) <= used <= path.stat().st_size:
                    found[_DECODE.decode(file.read(length)).key] = str(path)
    return found


def _begin(header: int) -> int:
    return -(-(_HEADER + header) // _ALIGN) * _ALIGN
