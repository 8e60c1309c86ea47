"""The depot: the partitions that a node holds, on a disk of its own, shared by its workers.

A node copies its partitions once from the dataset's folder, never the whole dataset. Every worker of the node has
the depot locked for sharing while it lives; the last one to leave removes it, and what a killed one left behind is
removed by whoever comes next. The same holds for each partition: a worker may have a unit on it in its queue when
another one gives it up.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, final

from hoptree.data.errors import DataError
from hoptree.data.manifest import DataFile, Manifest, checksum, read_manifest
from hoptree.data.verified import changed

if TYPE_CHECKING:
    from hoptree.data import Dataset

_LOCK = "lock"


@final
class PartitionCache:
    """The data of one node; without ``copy`` the dataset's own files are used, and only the partitions differ."""

    def __init__(self, source: str, fingerprint: str, node: str, *, copy: bool) -> None:
        self._source = Path(source)
        self._manifest = _read(self._source, fingerprint)
        self._copies = copy
        self._lock = -1
        self._held: dict[int, int] = {}  # by partition: the descriptor of a lock that its holders share
        self.partitions: tuple[int, ...] = ()
        if copy:
            home = _home()
            _remove_abandoned(home)
            self.folder = home / f"{fingerprint[:16]}-{node[:16]}"
            self._lock = _share(self.folder)
        else:
            self.folder = self._source

    @property
    def bytes(self) -> int:
        """How much of the data it holds, without validation data."""
        return sum(self._manifest.train[partition].bytes for partition in self.partitions)

    def dataset(self) -> Dataset:
        """Return the dataset as it is here: only the partitions that are held can be read."""
        from hoptree.data import Dataset

        return Dataset(self.folder, self._manifest)

    def hold(self, partitions: Iterable[int]) -> None:
        """Have these partitions, and the validation data; others go when no worker of the node has them."""
        wanted = tuple(sorted(partitions))
        if self._copies:
            if self._manifest.valid is not None:
                self._bring(self._manifest.valid)
            for partition in wanted:
                file = self._manifest.train[partition]
                if partition not in self._held:
                    self._held[partition] = _open(self.folder / f"{file.name}.held")
                    fcntl.flock(self._held[partition], fcntl.LOCK_SH)
                self._bring(file)
            for partition in set(self._held) - set(wanted):
                self._let_go(partition)
        self.partitions = wanted

    def close(self) -> None:
        """Leave; the last worker of the node takes the depot with it."""
        while self._held:
            os.close(self._held.popitem()[1])
        if self._lock >= 0:
            _remove_if_last(self.folder, self._lock)
            os.close(self._lock)
            self._lock = -1

    def _let_go(self, partition: int) -> None:
        lock = self._held.pop(partition)
        with suppress(OSError):  # another worker still has it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.folder / self._manifest.train[partition].name).unlink(missing_ok=True)
        os.close(lock)

    def _bring(self, file: DataFile) -> None:
        """Copy a file once, whichever worker of the node comes first; a copy is compared with its checksum."""
        target = self.folder / file.name
        with _alone(self.folder / f"{file.name}.lock"):
            if target.exists():
                return
            aside = target.with_suffix(".partial")
            shutil.copyfile(self._source / file.name, aside)
            if checksum(aside) != file.checksum:
                raise changed(self._source / file.name, self._manifest.holds(file))
            aside.replace(target)


def _read(source: Path, fingerprint: str) -> Manifest:
    try:
        manifest = read_manifest(source)
    except (OSError, DataError) as error:
        raise DataError(
            f"data: {source} is not there for this node ({error}); build the dataset in a folder that all nodes "
            "see under one name, for example Dataset.from_arrays(…, to='/shared/digits')"
        ) from None
    if manifest.fingerprint != fingerprint:
        raise DataError(
            f"data: {source} holds another dataset on this node ({manifest.fingerprint}, expected {fingerprint}); "
            "use a folder that all nodes share"
        )
    return manifest


def _home() -> Path:
    return Path(gettempdir()) / f"hoptree-depots-{os.getuid()}"


def _open(path: Path) -> int:
    """Open a file to be locked; the lock goes with the process, however it ends."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _share(folder: Path) -> int:
    """Lock a depot for as long as we live; one that is removed between opening and locking is made again."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            lock = _open(folder / _LOCK)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)


def _remove_if_last(folder: Path, lock: int) -> None:
    with suppress(OSError):  # somebody else is still here
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(home: Path) -> None:
    for folder in home.iterdir() if home.is_dir() else ():
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                _remove_if_last(folder, lock)
            finally:
                os.close(lock)
