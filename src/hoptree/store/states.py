"""States by key: what can be done wherever they are kept, and how a location is opened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from hoptree.store.errors import StateFormatError, StateMissingError

if TYPE_CHECKING:
    from hoptree.store.arrays import Array, Arrays

SUFFIX: Final = ".safetensors"
_KEY = re.compile(r"[0-9a-z][0-9a-z_.-]{1,199}")


class StateStore(Protocol):
    """One file per state, in ``ab/abcdef….safetensors``; many processes may use one location at a time."""

    @property
    def location(self) -> str:
        """The folder or URL: what a worker opens."""
        ...

    def put(self, key: str, arrays: Arrays, meta: dict[str, Any], *, durable: bool = True) -> int:
        """Store a state and return its size in bytes; a state of that key is replaced at once."""
        ...

    def get(self, key: str, verify: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return a state's arrays, read-only, and its meta.

        They stay valid when the state is deleted or replaced. Without ``verify`` the arrays are not compared
        with their checksum: for a state that this very process has just written.
        """
        ...

    def delete(self, key: str) -> int:
        """Remove a state and return the bytes that this frees: 0 if it was not there."""
        ...

    def size(self, key: str) -> int:
        """Return the size of a state's file in bytes: 0 if it is not there."""
        ...

    def __contains__(self, key: str) -> bool: ...

    def keys(self) -> list[str]:
        """Return the keys of all states, in order."""
        ...

    def sizes(self) -> dict[str, int]:
        """Return every key, in order, with its file's size in bytes."""
        ...

    def address(self, key: str) -> str:
        """Return the path or URL of a state's file, whether it is there or not."""
        ...

    def partial(self) -> dict[str, int]:
        """Return the files that are not whole, with their sizes: being written, or left by crashed writers."""
        ...

    def clean(self) -> int:
        """Remove what crashed writers left behind, and return how many bytes; running writes are left alone."""
        ...

    def sign(self, name: str) -> None:
        """Leave a sign by which another process sees that it has the same location."""
        ...

    def signed(self, name: str) -> bool:
        """Return whether somebody has left that sign."""
        ...

    def signs(self, beginning: str) -> list[str]:
        """Return the signs whose names begin like this."""
        ...

    def unsign(self, name: str) -> None:
        """Take a sign away."""
        ...


def open_states(location: str | Path, durable: bool = True) -> StateStore:
    """Open the states in a folder, or at a URL that fsspec knows."""
    from hoptree.store.folder_states import FolderStates

    text = str(location)
    if text.startswith("file://"):
        return FolderStates(text.removeprefix("file://"), durable)
    if "://" not in text:
        return FolderStates(location, durable)
    from hoptree.store.remote_states import RemoteStates

    return RemoteStates(text)


def file_name(key: str) -> str:
    """Return where a state lies below its location."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise StateFormatError(
            f"key: {key!r}; expected 2 to 200 of the characters 0-9 a-z _ . - that begin with a letter or digit"
        )
    return f"{key[:2]}/{key}{SUFFIX}"


def missing(key: str, location: str) -> StateMissingError:
    """Return the error that says that a state is not there."""
    return StateMissingError(
        f"{key}: no such state in {location}; it was never put, or was deleted since; "
        "train it again from its nearest stored ancestor"
    )
