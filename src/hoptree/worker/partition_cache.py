"""The partitions that a node holds on a local disk, shared by its workers.

A node copies its partitions once from the dataset's folder, never the whole dataset. Every worker of the node holds
a shared lock on the cache while it runs; the last one to exit removes it, and the next worker removes a cache that
killed ones have left behind. The same applies to each partition: a worker may have a unit on it in its queue when
another one releases it.
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

from hoptree.data.errors import DataChangedError, DataError
from hoptree.data.manifest import DataFile, Manifest, checksum, read_manifest
from hoptree.data.verified import changed, verify

if TYPE_CHECKING:
    from hoptree.data import Dataset

_LOCK = "lock"


@final
class PartitionCache:
    """The data of one node; without ``copy``, it uses the dataset's own files, and only notes the partitions."""

    def __init__(self, source: str, fingerprint: str, node: str, *, copy: bool) -> None:
        self._source = Path(source)
        self._manifest = _read(self._source, fingerprint)
        self._copies = copy
        self._lock = -1
        self._held: dict[int, int] = {}  # by partition: the descriptor of a shared lock
        self.partitions: tuple[int, ...] = ()
        if copy:
            _remove_abandoned(_root())
            self.folder = cache_folder(fingerprint, node)
            self._lock = _lock_shared(self.folder)
        else:
            self.folder = self._source

    @property
    def bytes(self) -> int:
        """The size of its partitions, without validation data."""
        return sum(self._manifest.train[partition].bytes for partition in self.partitions)

    @property
    def to_rehearse(self) -> int:
        """The partition to rehearse on: the first of all where it can be read, since its probes are compared."""
        return self.partitions[0] if self._copies else 0

    def dataset(self) -> Dataset:
        """Return the dataset; only the partitions that are held can be read."""
        from hoptree.data import Dataset

        return Dataset(self.folder, self._manifest)

    def hold(self, partitions: Iterable[int]) -> None:
        """Hold these partitions and the validation data; remove others when no worker of the node holds them."""
        wanted = tuple(sorted(partitions))
        if self._copies:
            if self._manifest.valid is not None:
                self._fetch(self._manifest.valid)
            for partition in wanted:
                file = self._manifest.train[partition]
                if partition not in self._held:
                    self._held[partition] = _open(self.folder / f"{file.name}.held")
                    fcntl.flock(self._held[partition], fcntl.LOCK_SH)
                self._fetch(file)
            for partition in set(self._held) - set(wanted):
                self._release(partition)
        self.partitions = wanted

    def close(self) -> None:
        """Release everything; the last worker of the node removes the cache."""
        while self._held:
            os.close(self._held.popitem()[1])
        if self._lock >= 0:
            _remove_if_last(self.folder, self._lock)
            os.close(self._lock)
            self._lock = -1

    def _release(self, partition: int) -> None:
        lock = self._held.pop(partition)
        with suppress(OSError):  # another worker still holds it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.folder / self._manifest.train[partition].name).unlink(missing_ok=True)
        os.close(lock)

    def _fetch(self, file: DataFile) -> None:
        """Copy a file, unless the node has a copy whose checksum is right, and verify its checksum."""
        target = self.folder / file.name
        with _locked(self.folder / f"{file.name}.lock"):
            with suppress(FileNotFoundError, DataChangedError):
                verify(target, file, self._manifest.holds(file))
                return
            partial = target.with_suffix(".partial")
            shutil.copyfile(self._source / file.name, partial)
            if checksum(partial) != file.checksum:
                raise changed(self._source / file.name, self._manifest.holds(file))
            partial.replace(target)


def cache_folder(fingerprint: str, node: str) -> Path:
    """Return the folder of a node's copies of a dataset."""
    return _root() / f"{fingerprint[:16]}-{node[:16]}"


def _read(source: Path, fingerprint: str) -> Manifest:
    try:
        manifest = read_manifest(source)
    except (OSError, DataError) as error:
        raise DataError(
            f"data: {source} cannot be read on this node ({error}); build the dataset in a folder that all nodes "
            "share under one path, for example Dataset.from_arrays(…, to='/shared/digits')"
        ) from None
    if manifest.fingerprint != fingerprint:
        raise DataError(
            f"data: {source} holds another dataset on this node ({manifest.fingerprint}, expected {fingerprint}); "
            "use a folder that all nodes share"
        )
    return manifest


def _root() -> Path:
    return Path(gettempdir()) / f"hoptree-depots-{os.getuid()}"


def _open(path: Path) -> int:
    """Open a file for locking; the lock ends with the process, however it ends."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock_shared(folder: Path) -> int:
    """Take a shared lock on a cache folder; create it again if it is removed between opening and locking."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            lock = _open(folder / _LOCK)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)


def _remove_if_last(folder: Path, lock: int) -> None:
    with suppress(OSError):  # another worker still uses it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    for folder in root.iterdir() if root.is_dir() else ():
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                _remove_if_last(folder, lock)
            finally:
                os.close(lock)
