"""Verified files: remember, once per machine, which files had the right checksum.

A record is keyed by the file's path and contains everything that the system knows about the file without reading
it: device, inode, size, modification time and change time. Nobody can set the change time, so a file that was
edited, replaced or relinked is read again, whatever its other times say. Records are in a folder of the user below
the system's temporary folder; a folder that others may write to is not trusted, and then nothing is remembered.
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

_SETTLED: Final = 100_000_000  # nanoseconds: the clocks of file systems have a finer resolution than this
_KEPT: Final = 90 * 86_400.0  # seconds to keep the record of a file that is not read any more


class Stamp(NamedTuple):
    """Distinguishes a file from another one at its path, and from itself after a write."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        """Return the stamp of a file's status."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class _Record(msgspec.Struct, frozen=True):
    path: str
    stamp: Stamp
    checksum: str


def verify(path: Path, file: DataFile, what: str) -> Stamp:
    """Compare a file with its checksum unless this machine has done so before; return its current stamp.

    If several processes verify one file at a time, one reads it and the others wait for the result. ``what``
    describes the file's content in errors.
    """
    with path.open("rb", buffering=0) as opened:
        stamp = Stamp.of(os.fstat(opened.fileno()))
        folder = _folder()
        if folder is None:
            _compare(path, opened, file, what)
            return stamp
        record_path = folder / blake2b(os.fsencode(path), digest_size=16).hexdigest()
        if _is_recorded(record_path, path, stamp, file):
            return stamp
        with _exclusive(record_path):
            if not _is_recorded(record_path, path, stamp, file):
                _compare(path, opened, file, what)
                if Stamp.of(os.fstat(opened.fileno())) == stamp and time.time_ns() - stamp.changed > _SETTLED:
                    _write_record(record_path, _Record(str(path), stamp, file.checksum))
    return stamp


def changed(path: Path, what: str) -> DataChangedError:
    """Return the error for a file whose content does not match the manifest."""
    return DataChangedError(
        f"{path}: was changed: its bytes do not match the manifest's checksum of {what}; "
        f"remove {path.parent} and build the dataset again"
    )


def _compare(path: Path, opened: FileIO, file: DataFile, what: str) -> None:
    if checksum_of(opened) != file.checksum:
        raise changed(path, what)


def _is_recorded(record_path: Path, path: Path, stamp: Stamp, file: DataFile) -> bool:
    try:
        record = msgspec.json.decode(record_path.read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return False
    return record == _Record(str(path), stamp, file.checksum)


def _write_record(record_path: Path, record: _Record) -> None:
    """Write a record to a temporary file and rename it; if that fails, nothing is remembered."""
    temporary = record_path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        if not record_path.exists():
            _remove_old(record_path.parent)
        temporary.write_bytes(msgspec.json.encode(record))
        temporary.replace(record_path)


def _remove_old(folder: Path) -> None:
    """Remove old records, most of whose datasets no longer exist."""
    oldest = time.time() - _KEPT
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)


def _folder() -> Path | None:
    """Return the folder of this user's records; None if it cannot be created or others could write to it."""
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
def _exclusive(record_path: Path) -> Iterator[None]:
    """Let one process at a time read a file; the lock ends with the process."""
    descriptor = -1
    with suppress(OSError):  # without a lock, each process reads the file itself
        descriptor = os.open(record_path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)
