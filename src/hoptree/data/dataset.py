"""The dataset: a handle on a folder of memory-mapped partitions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hoptree.data.errors import DataError
from hoptree.data.manifest import NAME, Column, Manifest, checksum, read_manifest
from hoptree.data.maps import Maps
from hoptree.data.verified import changed, verify

if TYPE_CHECKING:
    import numpy as np

    from hoptree.data.build import DataSource
    from hoptree.data.files import Paths

# numpy and pyarrow are imported when data is built or read, so that `import hoptree` stays fast


@final
class Dataset:
    """Data that is shuffled once and split into partitions, in a folder; created by ``from_…`` or ``open``.

    The folder never changes after it was built. So a handle is cheap, is sent to other processes as a path, and all
    processes share one copy of the data in the page cache. Row i of the input draws the i-th 64-bit word of numpy's
    ``PCG64(seed)``, and rows are sorted by their words. The first rows are for validation (a fraction ``valid`` of
    all), the rest are split into partitions of nearly equal size.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._path = path
        self._manifest = manifest
        self._maps = Maps(path, manifest.columns)

    @classmethod
    def from_arrays(
        cls,
        *,
        partitions: int,
        valid: float | Mapping[str, Any] = 0.2,
        seed: int = 0,
        to: str | os.PathLike[str] | None = None,
        **columns: Any,
    ) -> Dataset:
        """Build from columns in memory: arrays, lists, tensors or series with one entry per row.

        ``valid`` is a fraction of the rows, 0 for none, or separate columns. The dataset is written to ``to``, or
        below ``.hoptree/data`` in the working directory, where the same data is found again instead of written
        twice.
        """
        from hoptree.data.arrays import ArraySource

        held_out = ArraySource(valid, what="valid") if isinstance(valid, Mapping) else _fraction(valid)
        if held_out is None:
            raise DataError(
                f"valid: a {type(valid).__name__}; expected a fraction of the rows, or a mapping of columns with "
                f"the names of the training data, for example valid={{'x': x, 'y': y}}"
            )
        return cls._build(ArraySource(columns), held_out, partitions, seed, to)

    @classmethod
    def from_parquet(
        cls,
        files: Paths,
        *,
        partitions: int,
        valid: float | Paths = 0.2,
        seed: int = 0,
        to: str | os.PathLike[str] | None = None,
    ) -> Dataset:
        """Build from Parquet files (a path, a folder, a glob, or a list of these), in bounded memory.

        Lists of constant length become n-d rows. ``valid`` is a fraction, 0 for none, or other files.
        """
        from hoptree.data.files import FileSource, parquet_files

        fraction = _fraction(valid)
        held_out = FileSource(parquet_files(valid, "valid")) if fraction is None else fraction
        return cls._build(FileSource(parquet_files(files)), held_out, partitions, seed, to)

    @classmethod
    def from_folder(
        cls,
        folder: str | os.PathLike[str],
        *,
        partitions: int,
        valid: float | str | os.PathLike[str] = 0.2,
        seed: int = 0,
        to: str | os.PathLike[str] | None = None,
    ) -> Dataset:
        """Build from all Arrow IPC and Parquet files of a folder, in the order of their names, in bounded memory.

        ``valid`` is a fraction, 0 for none, or another folder.
        """
        from hoptree.data.files import FileSource, folder_files

        fraction = _fraction(valid)
        held_out = FileSource(folder_files(valid, "valid")) if fraction is None else fraction
        return cls._build(FileSource(folder_files(folder)), held_out, partitions, seed, to)

    @classmethod
    def from_files(
        cls,
        files: Paths,
        *,
        partitions: int,
        valid: float | Paths = 0.2,
        seed: int = 0,
        to: str | os.PathLike[str] | None = None,
    ) -> Dataset:
        """Build from files of any supported format, by their suffixes; ``hoptree data build`` calls this.

        ``files`` is a path, a folder of Arrow and Parquet files, a glob, or a list of these, of Parquet, Arrow and
        CSV files, all read in bounded memory; or one ``.npz`` file, whose arrays are the columns. ``valid`` is a
        fraction, 0 for none, or other files.
        """
        from hoptree.data.sources import check_disjoint, find_files, source_of

        train = find_files(files)
        held_out = _fraction(valid)
        if held_out is None:
            others = find_files(valid, "valid")  # type: ignore[arg-type]
            check_disjoint(train, others)
            return cls._build(source_of(train), source_of(others), partitions, seed, to)
        return cls._build(source_of(train), held_out, partitions, seed, to)

    @classmethod
    def from_ray(
        cls,
        data: Any,
        *,
        partitions: int,
        valid: float | Any = 0.2,
        seed: int = 0,
        to: str | os.PathLike[str] | None = None,
    ) -> Dataset:
        """Build from a Ray Data dataset, read and transformed on its cluster, with bounded memory in this process.

        Data can come from anything that Ray Data reads: Parquet in object stores, images, databases. ``valid`` is a
        fraction, 0 for none, or another dataset. To train on a cluster, ``to`` is a folder that all nodes share.
        """
        from hoptree.data.streams import StreamSource, ray_batches

        fraction = _fraction(valid)
        held_out = StreamSource(ray_batches(valid, "valid"), "valid") if fraction is None else fraction
        return cls._build(StreamSource(ray_batches(data), "from_ray"), held_out, partitions, seed, to)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dataset:
        """Open a dataset that was built before; checks the manifest and the files' sizes, not their bytes."""
        folder = Path(path).absolute()
        return cls(folder, read_manifest(folder))

    @classmethod
    def _build(
        cls,
        train: DataSource,
        valid: float | DataSource,
        partitions: int,
        seed: int,
        to: str | os.PathLike[str] | None,
    ) -> Dataset:
        from hoptree.data.build import Build, build

        return cls.open(build(Build(train, valid, partitions=partitions, seed=seed), to))

    @property
    def path(self) -> Path:
        """The folder, as an absolute path."""
        return self._path

    @property
    def manifest(self) -> Manifest:
        """Everything that is known without opening the data files."""
        return self._manifest

    @property
    def fingerprint(self) -> str:
        """The digest of the content: equal fingerprints mean equal rows in equal order."""
        return self._manifest.fingerprint

    @property
    def columns(self) -> tuple[Column, ...]:
        """The schema: the name, type and row shape of every column."""
        return self._manifest.columns

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._manifest.partitions

    @property
    def rows(self) -> int:
        """The number of rows of all partitions, without validation data."""
        return sum(file.rows for file in self._manifest.train)

    @property
    def valid_rows(self) -> int:
        """The number of rows of the validation data."""
        return 0 if self._manifest.valid is None else self._manifest.valid.rows

    def partition(self, index: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return a partition: numbers are read-only views of the file, which is mapped once and stays mapped.

        This takes no process memory: the data is in the page cache, as long as there is room. Text is copied into
        an array of objects at every call and not cached, so only the caller's copies are in memory.
        """
        if not 0 <= index < self.partitions:
            raise DataError(f"partition: {index} given; this dataset has partitions 0 to {self.partitions - 1}")
        file = self._manifest.train[index]
        return self._maps.read(file, self._manifest.holds(file))

    def valid(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Return validation data in the same form as ``partition``, or None if there is none."""
        file = self._manifest.valid
        return None if file is None else self._maps.read(file, self._manifest.holds(file))

    def verify(self) -> None:
        """Read every file and compare it with its checksum; DataChangedError names the first changed file."""
        read_manifest(self._path)
        for file in self._manifest.files:
            if checksum(self._path / file.name) != file.checksum:
                raise changed(self._path / file.name, self._manifest.holds(file))

    def check(self) -> None:
        """Raise an error if data was changed since it was built, or since this machine last read it.

        Files with times (of modification or change) later than the manifest's are compared with their checksums,
        once per machine; workers compare the others when they first map them. So this costs nothing for a folder
        that was built here, and one pass for one that was copied.
        """
        read_manifest(self._path)
        built = (self._path / NAME).stat().st_mtime_ns
        for file in self._manifest.files:
            path = self._path / file.name
            found = path.stat()
            if max(found.st_mtime_ns, found.st_ctime_ns) > built:
                verify(path, file, self._manifest.holds(file))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self._path), self.fingerprint)

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name}: {column}" for column in self.columns)
        return (
            f"Dataset({columns}; {self.rows} rows in {self.partitions} partitions, {self.valid_rows} for "
            f"validation; {self._path})"
        )


def _fraction(valid: object) -> float | None:
    return float(valid) if isinstance(valid, Real) else None  # includes numpy's numbers


def _reopen(path: str, fingerprint: str) -> Dataset:
    dataset = Dataset.open(path)
    if dataset.fingerprint != fingerprint:
        raise DataError(f"{path}: holds another dataset now ({dataset.fingerprint}, expected {fingerprint})")
    return dataset
