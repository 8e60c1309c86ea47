"""One state as one file: safetensors, with the state's JSON and a checksum in the header.

Any safetensors reader can open it. We write and read the format ourselves because the library copies arrays and
aligns them to 8 bytes only: here arrays are memory-mapped, and all whose size is a multiple of 64 bytes are aligned
to 64 bytes. The checksum (xxh3, 64 bits) covers the header, with the checksum's own digits as zeros, and all array
bytes.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.store import exact_json
from hoptree.store.arrays import CODES, NAMES, contiguous, raw
from hoptree.store.errors import StateDamagedError, StateFormatError, StoreVersionError

if TYPE_CHECKING:
    from hoptree.store.arrays import Array, Arrays

STATE_FORMAT = "1"
_ALIGNMENT = 64
_NO_CHECKSUM = "0" * 16


class _Place(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _About(msgspec.Struct, frozen=True):
    # The checksum comes first in the file, so that it can be found without parsing.
    xxh3: str
    format: str
    key: str
    meta: str


class StateFileParts(msgspec.Struct, frozen=True):
    """The pieces of a state's file, in the order in which they are written."""

    pieces: list[bytes | memoryview]

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""
        return sum(memoryview(piece).nbytes for piece in self.pieces)


def lay_out(key: str, arrays: Arrays, meta: dict[str, Any]) -> StateFileParts:
    """Return the file of a state; arrays are copied only if they are not contiguous in memory."""
    import xxhash

    ordered = _ordered({_name(name): contiguous(name, array) for name, array in arrays.items()})
    bodies = [raw(array) for array in ordered.values()]
    about = _About(_NO_CHECKSUM, STATE_FORMAT, key, exact_json.dump(meta, "meta"))
    header = _header(about, ordered)
    checksum = xxhash.xxh3_64(header)
    for body in bodies:
        checksum.update(body)
    header = header.replace(_NO_CHECKSUM.encode(), checksum.hexdigest().encode(), 1)
    return StateFileParts([len(header).to_bytes(8, "little") + header, *bodies])


def load(path: Path, key: str, verify: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
    """Memory-map a state's file: arrays are read-only and stay valid as long as they are referenced.

    Without ``verify`` arrays are not compared with the checksum, so only the header is read.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
            return read(b"", path, key)
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if verify else 0)
        mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
    return read(mapped, path, key, verify)


def read(
    content: bytes | mmap.mmap, path: Path | str, key: str, verify: bool = True
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Parse the content of a state's file; ``path`` is for messages. Arrays are views of the content."""
    size = len(content)
    if size < 8:
        raise _damaged(path, f"it has {size} bytes")
    end = 8 + int.from_bytes(content[:8], "little")
    if end > size:
        raise _damaged(path, f"its header is truncated: expected {end} bytes, found {size}")
    header = content[8:end]
    try:
        about, places = _parse(header)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _damaged(path, f"its header cannot be read ({error})") from None
    if about.format != STATE_FORMAT:
        raise StoreVersionError(
            f"{path}: a state of format {about.format}; this Hoptree reads format {STATE_FORMAT}; "
            "use the version of Hoptree that wrote it, or another store"
        )
    _check(path, key, about, places, size - end)
    if verify:
        import xxhash

        checksum = xxhash.xxh3_64(header.replace(about.xxh3.encode(), _NO_CHECKSUM.encode(), 1))
        checksum.update(memoryview(content)[end:])
        if checksum.hexdigest() != about.xxh3:
            raise _damaged(path, f"its checksum is {checksum.hexdigest()}, expected {about.xxh3}")
    try:
        meta = exact_json.load(about.meta)
    except ValueError as error:
        raise _damaged(path, f"its meta cannot be read ({error})") from None
    return {name: _array(content, end, place) for name, place in places.items()}, meta


def _name(name: str) -> str:
    try:
        plain = isinstance(name, str) and name != "__metadata__" and bool(name.encode())
    except UnicodeEncodeError:
        plain = False
    if not plain:
        raise StateFormatError(
            f"arrays: invalid name {name!r}; expected a non-empty string that UTF-8 can encode, not '__metadata__'"
        )
    return name


def _ordered(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Sort by the power of two that divides the size, largest first: this aligns all arrays without gaps."""

    def rank(name: str) -> tuple[int, str]:
        size = arrays[name].nbytes
        return -min(size & -size or _ALIGNMENT, _ALIGNMENT), name

    return {name: arrays[name] for name in sorted(arrays, key=rank)}


def _header(about: _About, arrays: Mapping[str, Array]) -> bytes:
    header: dict[str, object] = {"__metadata__": msgspec.to_builtins(about)}
    offset = 0
    for name, array in arrays.items():
        offsets = [offset, offset + array.nbytes]
        header[name] = {"dtype": CODES[array.dtype.name], "shape": array.shape, "data_offsets": offsets}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-(len(text) + 8) % _ALIGNMENT)


def _parse(header: bytes) -> tuple[_About, dict[str, _Place]]:
    places = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
    about = msgspec.json.decode(places.pop("__metadata__", msgspec.Raw(b"{}")), type=_About)
    return about, {name: msgspec.json.decode(place, type=_Place) for name, place in places.items()}


def _check(path: Path | str, key: str, about: _About, places: Mapping[str, _Place], size: int) -> None:
    import numpy as np

    if about.key != key:
        raise _damaged(path, f"it contains the state {about.key}")
    offset = 0
    for name, place in sorted(places.items(), key=lambda item: item[1].data_offsets):
        begin, end = place.data_offsets
        if place.dtype not in NAMES or begin != offset:
            raise _damaged(path, f"its header has a wrong type or offset for the array {name!r}")
        if min(place.shape, default=0) < 0 or end - begin != (
            math.prod(place.shape) * np.dtype(NAMES[place.dtype]).itemsize
        ):
            raise _damaged(path, f"its header has a wrong size for the array {name!r}")
        offset = end
    if offset != size:
        raise _damaged(path, f"it is truncated or too long: expected {offset} bytes of arrays, found {size}")


def _array(content: bytes | mmap.mmap, start: int, place: _Place) -> Array:
    import numpy as np

    dtype = np.dtype(NAMES[place.dtype]).newbyteorder("<")
    begin, end = place.data_offsets
    count = (end - begin) // dtype.itemsize
    if not count:
        array = np.empty(place.shape, dtype)
        array.flags.writeable = False
        return array
    return np.frombuffer(content, dtype, count, start + begin).reshape(place.shape)


def _damaged(path: Path | str, what: str) -> StateDamagedError:
    return StateDamagedError(
        f"{path}: this state is damaged: {what}; delete it to train the state again from its nearest stored "
        "ancestor; if this happens again, check the disk"
    )
