"""Which files were read and had the right checksum, remembered once per machine.

A record is keyed by the file's path and holds all that the system knows of the file without reading it: device,
inode, size, modification time and change time. Nobody can set the change time, so a file that was edited, replaced
or linked anew is read again, whatever its other times say. Records lie in a folder of the user's own below the
system's folder for temporary files; a folder that others may write to is not trusted, and nothing is remembered.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from tempfile import gettempdir
from typing import Final, NamedTuple

import msgspec

from hoptree.data.errors import DataChangedError
from hoptree.data.manifest import DataFile, checksum_of

_SETTLED: Final = 100_000_000  # nanoseconds: clocks of file systems tick more often than this
_KEPT: Final = 90 * 86_400.0  # seconds for which the record of a file that nobody reads any more is kept


class Stamp(NamedTuple):
    """What tells a file from another one in its place, and from itself after a write."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        """Return the stamp of a file that was looked at."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class _Record(msgspec.Struct, frozen=True):
    path: str
    stamp: Stamp
    checksum: str


def verify(path: Path, file: DataFile, what: str) -> Stamp:
    """Compare a file with its checksum unless this machine has done so before; return the stamp it has now.

    Of several processes that ask for one file at a time, one reads it and the others wait for what it finds.
    ``what`` says in an error what the file holds.
    """
    with path.open("rb", buffering=0) as opened:
        stamp = Stamp.of(os.fstat(opened.fileno()))
        folder = _folder()
        if folder is None:
            _compare(path, opened, file, what)
            return stamp
        place = folder / blake2b(os.fsencode(path), digest_size=16).hexdigest()
        if _knows(place, path, stamp, file):
            return stamp
        with _alone(place):
            if not _knows(place, path, stamp, file):
                _compare(path, opened, file, what)
                if Stamp.of(os.fstat(opened.fileno())) == stamp and time.time_ns() - stamp.changed > _SETTLED:
                    _remember(place, _Record(str(path), stamp, file.checksum))
    return stamp


def changed(path: Path, what: str) -> DataChangedError:
    """Return the error for a file whose content is not what the manifest says."""
    return DataChangedError(
        f"{path}: was changed: its bytes do not fit the manifest's checksum of {what}; "
        f"remove {path.parent} and build the dataset again"
    )


def _compare(path: Path, opened: FileIO, file: DataFile, what: str) -> None:
    if checksum_of(opened) != file.checksum:
        raise changed(path, what)


def _knows(place: Path, path: Path, stamp: Stamp, file: DataFile) -> bool:
    try:
        record = msgspec.json.decode(place.read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return False
    return record == _Record(str(path), stamp, file.checksum)


def _remember(place: Path, record: _Record) -> None:
    """Write a record beside its place and rename it; without room nothing is remembered."""
    aside = place.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        if not place.exists():
            _sweep(place.parent)
        aside.write_bytes(msgspec.json.encode(record))
        aside.replace(place)


def _sweep(folder: Path) -> None:
    """Remove the records that nobody has written for long, of datasets that are mostly gone."""
    oldest = time.time() - _KEPT
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)


def _folder() -> Path | None:
    """Return the folder of this user's records, None when it cannot be made or others could write to it."""
    folder = Path(gettempdir()) / f"hoptree-verified-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if private else None


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Let one process at a time read a file; the lock goes with the process, however it ends."""
    descriptor = -1
    with suppress(OSError):  # no room for a lock: each process reads the file for itself
        descriptor = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)
