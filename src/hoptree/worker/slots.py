"""Slots: states in shared memory, so that a hop is one copy out and one copy in.

A slot is a file in shared memory: three numbers, a header (the offset of each array, and the JSON beside the
arrays) and the arrays, aligned to 64 bytes. The numbers are the header's length, which is 0 until the slot is
complete, a checksum (xxh3, 64 bits) of everything after it, and the number of bytes in use. Readers verify the
checksum first, so a damaged slot is never loaded.

A worker reuses its own slots: pages that are mapped already cause no page faults. Readers map a slot once and keep
the mapping. The files belong to the study's folders, not to a process: they outlive a worker that dies, and even
the driver. Where shared memory is small (containers often have 64 MB), slots that do not fit are files on disk, in
the page cache.
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
_MAPPED = 64  # slots that a reader keeps mapped
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)
_POPULATE_READ = 22  # madvise: map all pages now, for reading (Linux 5.14 and later)


class SlotArray(msgspec.Struct, frozen=True, array_like=True):
    """The place of one array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class SlotHeader(msgspec.Struct, frozen=True, array_like=True):
    """The key of a state, its arrays, and the JSON beside them."""

    key: str
    fields: tuple[SlotArray, ...]
    meta: dict[str, Any]


_ENCODE = msgspec.msgpack.Encoder()
_DECODE = msgspec.msgpack.Decoder(SlotHeader)
_NUMBERS = struct.Struct("<QQQ")  # the header's length, the checksum, the bytes in use
_EMPTY = bytes(8)


@final
class SlotWriter:
    """A worker's own slots, each in the first folder that has room; ``free`` makes one available again."""

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
        slot[: len(_EMPTY)] = _EMPTY  # incomplete: the writer may die at any moment
        slot[_HEADER : _HEADER + len(header)] = header
        for field, array in zip(fields, contiguous.values(), strict=True):
            target = np.frombuffer(slot, np.uint8, field.size, begin + field.offset)
            target[:] = array.reshape(-1).view(np.uint8)
        _NUMBERS.pack_into(slot, 0, 0, 0, begin + offset)
        _NUMBERS.pack_into(slot, 0, len(header), _checksum(slot, begin + offset), begin + offset)
        self._keys[key] = name
        return name

    def find(self, key: str) -> str:
        """Return the slot to which this worker has written a state, "" if it was freed."""
        return self._keys.get(key, "")

    def free(self, name: str) -> None:
        """Make a slot available again; ignore slots of others."""
        if name in self._maps and name not in self._idle:
            self._idle.append(name)
            self._keys = {key: slot for key, slot in self._keys.items() if slot != name}

    def _take(self, size: int) -> tuple[str, mmap.mmap]:
        for name in [name for name in self._idle if len(self._maps[name]) >= size]:
            self._idle.remove(name)
            if os.path.exists(name):
                return name, self._maps[name]
            del self._maps[name]  # the file was removed: nobody could read the slot
        length = -(-size // _PAGE) * _PAGE
        *others, last = self._folders
        for folder in others:
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
    """No folder has room for a state."""


class SlotDamagedError(Exception):
    """A slot does not hold what was written to it; its state is lost."""


def _allocate(path: Path, length: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, length)  # if memory is full, fail here instead of by a signal later
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)


@final
class SlotReader:
    """Reads slots of any worker, mapping each once."""

    def __init__(self) -> None:
        self._maps: dict[str, mmap.mmap] = {}

    def map(self, path: str) -> mmap.mmap:
        """Map a slot with all its pages, so that reading it later causes no page fault."""
        slot = self._maps.get(path)
        if slot is None:
            with open(path, "rb") as file:
                slot = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with suppress(OSError, ValueError):  # an older kernel maps pages as they are read
                slot.madvise(_POPULATE_READ)
            self._maps[path] = slot
            if len(self._maps) > _MAPPED:  # the last view of a removed file frees its memory
                del self._maps[next(iter(self._maps))]
        return slot

    def read(self, path: str) -> tuple[SlotHeader, dict[str, np.ndarray[Any, Any]]]:
        """Return header and arrays of a slot; raise ``SlotDamagedError`` if it is damaged.

        The arrays are views into the slot: they change when the slot is reused.
        """
        import numpy as np

        slot = self.map(path)
        with suppress(FileNotFoundError):  # a removed file stays mapped
            if os.stat(path).st_size < len(slot):  # reading beyond the end of a file kills the process
                del self._maps[path]
                raise SlotDamagedError(f"{path}: it was truncated to {os.stat(path).st_size} bytes")
        header, begin = _checked(path, slot)
        arrays = {
            field.name: np.frombuffer(slot, np.uint8, field.size, begin + field.offset)
            .view(np.dtype(field.dtype))
            .reshape(field.shape)
            for field in header.fields
        }
        return header, arrays


def _checked(path: str, slot: mmap.mmap) -> tuple[SlotHeader, int]:
    """Return a slot's header and the offset of its arrays; raise an error if the slot is damaged."""
    if len(slot) < _HEADER:
        raise SlotDamagedError(f"{path}: it has only {len(slot)} bytes")
    length, checksum, used = _NUMBERS.unpack_from(slot)
    if not 0 < _begin(length) <= used <= len(slot) or not length:
        raise SlotDamagedError(f"{path}: it holds no complete state")
    if _checksum(slot, used) != checksum:
        raise SlotDamagedError(f"{path}: its bytes do not match their checksum")
    try:
        return _DECODE.decode(slot[_HEADER : _HEADER + length]), _begin(length)
    except (msgspec.DecodeError, ValueError) as error:
        raise SlotDamagedError(f"{path}: its header cannot be read: {error}") from error


def _checksum(slot: mmap.mmap, used: int) -> int:
    import xxhash

    with memoryview(slot) as whole, whole[_CHECKED:used] as part:
        return xxhash.xxh3_64_intdigest(part)


def find_states(folders: Sequence[Path]) -> dict[str, str]:
    """Return the slots that hold a complete state, by the state's key, without damaged ones.

    Slots of a running driver may disappear meanwhile. Checksums are verified when a slot is read.
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
