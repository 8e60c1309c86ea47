"""States in a folder: written to a temporary file and renamed, so that a state is complete or absent."""

from __future__ import annotations

import errno
import os
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hoptree.store import state_file
from hoptree.store.errors import StoreFullError
from hoptree.store.states import SUFFIX, file_name, missing

if TYPE_CHECKING:
    from hoptree.store.arrays import Array, Arrays

_PARTIAL = ".partial"
_BATCH = 512  # pieces per call: half of the limit of Linux and macOS
_ATTEMPTS = 5  # to write a file whose folder is removed each time
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@final
class FolderStates:
    """Files in a folder that all processes can access.

    With ``durable`` a stored state survives a power failure. Without, it may be damaged or missing after one and is
    then trained again. A killed process loses no stored state in either case.
    """

    def __init__(self, folder: str | Path, durable: bool = True) -> None:
        self.folder = Path(folder).absolute()
        self.location = str(self.folder)
        self._durable = durable

    def put(self, key: str, arrays: Arrays, meta: dict[str, Any], *, durable: bool = True) -> int:
        """Store a state and return its size in bytes; atomically replace a state with the same key."""
        durable = durable and self._durable
        path = self.path(key)
        parts = state_file.lay_out(key, arrays, meta)
        try:
            self._replace(path, parts.pieces, durable)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StoreFullError(
                    f"{self.folder}: no room for the state {key} of {parts.size / 1e6:.1f} MB "
                    f"({error.strerror}); free some space, or keep the store on another disk"
                ) from error
            raise
        return parts.size

    def get(self, key: str, verify: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return a state's arrays, memory-mapped and read-only, and its meta."""
        path = self.path(key)
        try:
            return state_file.load(path, key, verify)
        except FileNotFoundError:
            raise missing(key, self.location) from None

    def delete(self, key: str) -> int:
        """Delete a state and return the number of bytes freed: 0 if it does not exist."""
        size = self.size(key)
        with suppress(FileNotFoundError):
            self.path(key).unlink()
            return size
        return 0

    def size(self, key: str) -> int:
        """Return the size of a state's file in bytes: 0 if it does not exist."""
        with suppress(FileNotFoundError):
            return self.path(key).stat().st_size
        return 0

    def __contains__(self, key: str) -> bool:
        return self.path(key).is_file()

    def keys(self) -> list[str]:
        """Return the keys of all states, sorted."""
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the file size in bytes by key, sorted by key."""
        return self._sizes(SUFFIX)

    def path(self, key: str) -> Path:
        """Return a state's file, whether it exists or not."""
        return self.folder / file_name(key)

    def address(self, key: str) -> str:
        """Return the path of a state's file, whether it exists or not."""
        return str(self.path(key))

    def partial(self) -> dict[str, int]:
        """Return incomplete files with their sizes."""
        return self._sizes(_PARTIAL)

    def clean(self) -> int:
        """Remove files left by crashed writers, and return their size in bytes; skip files being written."""
        return sum(_remove_if_abandoned(path) for path in self._files(_PARTIAL))

    def write_marker(self, name: str) -> None:
        """Write a marker, which every process that uses this folder can see."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).touch()

    def has_marker(self, name: str) -> bool:
        """Return whether a marker exists."""
        return (self.folder / name).exists()

    def markers(self, prefix: str) -> list[str]:
        """Return the names of the markers that start with a prefix, sorted."""
        return sorted(path.name for path in self.folder.glob(f"{prefix}*"))

    def remove_marker(self, name: str) -> None:
        """Remove a marker, if it exists."""
        (self.folder / name).unlink(missing_ok=True)

    def _sizes(self, suffix: str) -> dict[str, int]:
        found = {}
        for path in self._files(suffix):
            with suppress(FileNotFoundError):  # another process deleted or renamed it after it was listed
                found[path.name.removesuffix(suffix)] = path.stat().st_size
        return dict(sorted(found.items()))

    def _files(self, suffix: str) -> Iterator[Path]:
        with suppress(FileNotFoundError, NotADirectoryError):
            for shard in sorted(self.folder.iterdir()):
                with suppress(FileNotFoundError, NotADirectoryError):
                    yield from (path for path in shard.iterdir() if path.name.endswith(suffix))

    def _replace(self, path: Path, pieces: Sequence[bytes | memoryview], durable: bool) -> None:
        """Write a file at once; make its folder again if somebody removes it meanwhile."""
        for attempt in range(_ATTEMPTS):
            self._make_shard(path.parent, durable)
            try:
                with _partial(path) as (temporary, descriptor):
                    _write(descriptor, pieces)
                    if durable:
                        os.fsync(descriptor)
                    temporary.replace(path)
                if durable:
                    _sync_folder(path.parent)
                return
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _make_shard(self, shard: Path, durable: bool) -> None:
        if shard.is_dir():
            return
        shard.mkdir(parents=True, exist_ok=True)
        if durable:
            _sync_folder(self.folder)


def _write(descriptor: int, pieces: Sequence[bytes | memoryview]) -> None:
    rest = deque(view for piece in pieces if (view := memoryview(piece)).nbytes)
    while rest:
        written = os.writev(descriptor, list(islice(rest, _BATCH)))
        while written:
            piece = rest.popleft()
            if written < piece.nbytes:
                rest.appendleft(piece[written:])
            written -= min(written, piece.nbytes)


@contextmanager
def _partial(path: Path) -> Iterator[tuple[Path, int]]:
    """Open a temporary file beside ``path``, locked by this process; remove it unless it was renamed."""
    import fcntl

    while True:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_PARTIAL}")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a file system without locks: there, partial files are never removed either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A cleanup may have removed the file between opening and locking it; then try again.
            if os.fstat(descriptor).st_nlink:
                yield temporary, descriptor
                return
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


def _remove_if_abandoned(path: Path) -> int:
    """Remove a partial file whose writer has exited: the system releases its lock, however it died."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(descriptor).st_size
        path.unlink()  # fails if its writer has meanwhile renamed it
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return size


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
