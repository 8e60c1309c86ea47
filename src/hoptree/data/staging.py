"""Staging: a dataset is built in a hidden folder next to its target, then renamed.

The builder holds a lock on its folder. So the next build in the same place can tell folders of killed builders from
those in use, and removes them.
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
_NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Yield an empty folder below ``parent``; remove it at the end with everything that was not moved out."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        folder, lock = _locked_folder(parent)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise DataError(
            f"to: cannot build a dataset in {parent}: {error.strerror}; expected a writable folder"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def publish(folder: Path, target: Path) -> bool:
    """Move a finished folder to its target, atomically and durably; return False if the target exists."""
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
        os.close(lock)  # another builder removed the folder between the two calls


def _remove_abandoned(parent: Path) -> None:
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
