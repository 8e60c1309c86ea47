"""Slots: states in shared memory, so that a hop is one copy out and one copy in.

A slot is a file in shared memory with a header (where each array lies, and the JSON beside the arrays) and the
arrays, aligned to 64 bytes. A worker writes into slots of its own that it uses again and again: pages that are
mapped already cost no page fault. Others map a slot once and keep the mapping. The files belong to the study's
folder, not to a process: they outlive a worker that dies, and even the driver.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

if TYPE_CHECKING:
    import numpy as np

_ALIGN = 64
_HEADER = 8  # bytes that hold the header's length
_PAGE = 1 << 16


class Field(msgspec.Struct, frozen=True, array_like=True):
    """Where one array lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class Header(msgspec.Struct, frozen=True, array_like=True):
    """What a slot holds: the key of its state, the arrays, and the JSON beside them."""

    key: str
    fields: tuple[Field, ...]
    meta: dict[str, Any]


_ENCODE = msgspec.msgpack.Encoder()
_DECODE = msgspec.msgpack.Decoder(Header)


@final
class SlotWriter:
    """A worker's own slots; ``free`` makes one available again."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._count = 0
        self._maps: dict[str, mmap.mmap] = {}
        self._idle: list[str] = []

    def write(self, key: str, arrays: Mapping[str, np.ndarray[Any, Any]], meta: dict[str, Any]) -> str:
        """Copy a state into a slot and return the slot's name."""
        import numpy as np

        fields: list[Field] = []
        offset = 0
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        for name, array in contiguous.items():
            fields.append(Field(name, array.dtype.str, array.shape, offset, array.nbytes))
            offset += -(-array.nbytes // _ALIGN) * _ALIGN
        header = _ENCODE.encode(Header(key, tuple(fields), meta))
        begin = _begin(len(header))
        name, slot = self._take(begin + offset)
        slot[:_HEADER] = bytes(_HEADER)  # empty until all is there: a writer may die at any moment
        slot[_HEADER : _HEADER + len(header)] = header
        for field, array in zip(fields, contiguous.values(), strict=True):
            target = np.frombuffer(slot, np.uint8, field.size, begin + field.offset)
            target[:] = array.reshape(-1).view(np.uint8)
        slot[:_HEADER] = len(header).to_bytes(_HEADER, "little")
        return name

    def free(self, name: str) -> None:
        """Take a slot back; a name that is not ours is ignored."""
        if name in self._maps and name not in self._idle:
            self._idle.append(name)

    def _take(self, size: int) -> tuple[str, mmap.mmap]:
        for name in self._idle:
            if len(self._maps[name]) >= size:
                self._idle.remove(name)
                return name, self._maps[name]
        name = f"{self._owner}-{self._count}"
        self._count += 1
        length = -(-size // _PAGE) * _PAGE
        descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, length)  # a full memory is an error here, not a signal later
            slot = mmap.mmap(descriptor, length)
        finally:
            os.close(descriptor)
        self._maps[name] = slot
        return name, slot


@final
class SlotReader:
    """Slots of anybody, each mapped once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[str, mmap.mmap] = {}

    def keys(self) -> dict[str, str]:
        """Return the slots that hold a whole state, by the state's key."""
        found: dict[str, str] = {}
        for path in sorted(self._folder.iterdir()):
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_HEADER), "little")
                if length:
                    found[_DECODE.decode(file.read(length)).key] = path.name
        return found

    def read(self, name: str) -> tuple[Header, dict[str, np.ndarray[Any, Any]]]:
        """Return what a slot holds; the arrays are views that change when the slot is used again."""
        import numpy as np

        slot = self._maps.get(name)
        if slot is None:
            with (self._folder / name).open("rb") as file:
                slot = self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(slot[:_HEADER], "little")
        header = _DECODE.decode(slot[_HEADER : _HEADER + length])
        begin = _begin(length)
        arrays = {
            field.name: np.frombuffer(slot, np.uint8, field.size, begin + field.offset)
            .view(np.dtype(field.dtype))
            .reshape(field.shape)
            for field in header.fields
        }
        return header, arrays


def _begin(header: int) -> int:
    return -(-(_HEADER + header) // _ALIGN) * _ALIGN
