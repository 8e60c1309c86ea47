"""Writing aside: a dataset is built in a hidden folder next to its place, then renamed into it.

The builder holds a lock on its folder, so that what a killed builder left behind can be told from work that
goes on, and the next build in the same place removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hoptree.data.errors import DataError

PREFIX: Final = ".building-"
LOCK: Final = "lock"
_CLOSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Give an empty folder below ``parent``, removed at the end with all that was not moved away."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder, lock = _locked_folder(parent)
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
        raise DataError(
            f"to: no dataset can be built in {parent}: {error.strerror}; expected a folder that can be written"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def publish(folder: Path, target: Path) -> bool:
    """Move a finished folder to its place, at once and for good; False when the place is taken."""
    for path in folder.iterdir():
        _sync(path)
    _sync(folder)
    try:
        folder.rename(target)
    except OSError:
        if not target.exists():
            raise
        return False
    _sync(target.parent)
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)  # another builder swept the folder between the two calls


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / LOCK, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
