"""The protocols of a state store, and how a location is opened.

A state store is one class, but most code needs one part of it: each protocol below has the methods of one kind of
user.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from hoptree.store.errors import StateFormatError, StateMissingError

if TYPE_CHECKING:
    from hoptree.store.arrays import Array, Arrays

SUFFIX: Final = ".safetensors"
_KEY = re.compile(r"[0-9a-z][0-9a-z_.-]{1,199}")


class StateAccess(Protocol):
    """Reads and writes states by key: what workers, backends and results need."""

    def put(self, key: str, arrays: Arrays, meta: dict[str, Any], *, durable: bool = True) -> int:
        """Store a state and return its size in bytes; atomically replace a state with the same key."""
        ...

    def get(self, key: str, verify: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return a state's arrays, read-only, and its meta.

        They stay valid when the state is deleted or replaced. Without ``verify`` the arrays are not compared
        with their checksum: for a state that this process has just written.
        """
        ...

    def delete(self, key: str) -> int:
        """Delete a state and return the number of bytes freed: 0 if it does not exist."""
        ...

    def __contains__(self, key: str) -> bool: ...


class StateListing(Protocol):
    """Lists states and their sizes: for disk usage, eviction and messages."""

    def keys(self) -> list[str]:
        """Return the keys of all states, sorted."""
        ...

    def sizes(self) -> dict[str, int]:
        """Return the file size in bytes by key, sorted by key."""
        ...

    def size(self, key: str) -> int:
        """Return the size of a state's file in bytes: 0 if it does not exist."""
        ...

    def address(self, key: str) -> str:
        """Return the path or URL of a state's file, whether it exists or not."""
        ...


class PartialFiles(Protocol):
    """Finds and removes incomplete files: for ``hoptree clean``, and when a driver starts."""

    def partial(self) -> dict[str, int]:
        """Return incomplete files with their sizes: being written, or left by crashed writers."""
        ...

    def clean(self) -> int:
        """Remove files left by crashed writers, and return their size in bytes; skip files being written."""
        ...


class LocationMarkers(Protocol):
    """Empty files by which two processes see that they use the same location: for clusters."""

    def write_marker(self, name: str) -> None:
        """Write a marker, which every process that uses this location can see."""
        ...

    def has_marker(self, name: str) -> bool:
        """Return whether a marker exists."""
        ...

    def markers(self, prefix: str) -> list[str]:
        """Return the names of the markers that start with a prefix, sorted."""
        ...

    def remove_marker(self, name: str) -> None:
        """Remove a marker, if it exists."""
        ...


class StateStore(StateAccess, StateListing, PartialFiles, LocationMarkers, Protocol):
    """One file per state, in ``ab/abcdef….safetensors``; many processes may use one location at a time."""

    @property
    def location(self) -> str:
        """The folder or URL with which a worker opens the same states."""
        ...


def open_states(location: str | Path, durable: bool = True) -> StateStore:
    """Open the states in a folder, or at a URL that fsspec supports."""
    from hoptree.store.folder_states import FolderStates

    text = str(location)
    if text.startswith("file://"):
        return FolderStates(text.removeprefix("file://"), durable)
    if "://" not in text:
        return FolderStates(location, durable)
    from hoptree.store.remote_states import RemoteStates

    return RemoteStates(text)


def file_name(key: str) -> str:
    """Return a state's file name relative to its location; raise an error if the key is invalid."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise StateFormatError(
            f"key: {key!r}; expected 2 to 200 of the characters 0-9 a-z _ . - that start with a letter or digit"
        )
    return f"{key[:2]}/{key}{SUFFIX}"


def missing(key: str, location: str) -> StateMissingError:
    """Return the error for a state that does not exist."""
    return StateMissingError(
        f"{key}: no such state in {location}; it was never stored, or has been deleted; "
        "train it again from its nearest stored ancestor"
    )
