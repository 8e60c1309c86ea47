# mypy: disable-error-code="import-untyped"
"""Build a dataset: shuffle once, split, write to a staging folder, seal with a manifest, rename.

The shuffled rows are split in order: validation rows first, then the partitions, whose sizes differ by at most one,
larger ones first. Separate validation data keeps its order.
"""

from __future__ import annotations

import math
import operator
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, final

from hoptree.data.errors import DataChangedError, DataError
from hoptree.data.manifest import (
    NAME,
    VERSION,
    Column,
    DataFile,
    Manifest,
    checksum,
    digest,
    read_manifest,
    same_columns,
    write_manifest,
)
from hoptree.data.shuffle import shuffled
from hoptree.data.spool import write_rows
from hoptree.data.staging import publish, staging

MEMORY: Final = 128 << 20  # bytes of rows to sort in memory at a time


class DataSource(Protocol):
    """Rows to build a dataset from; they can be read more than once."""

    rows: int
    columns: tuple[Column, ...]
    in_memory: bool

    def batches(self) -> Iterator[Any]:
        """Yield all rows in order."""
        ...

    def digest(self) -> str:
        """Return a digest of the content."""
        ...


@final
class Build:
    """The arguments of a build, checked before anything is read or written."""

    def __init__(self, train: DataSource, valid: float | DataSource, *, partitions: int, seed: int) -> None:
        self.train = train
        self.partitions = _integer("partitions", partitions, 1)
        self.seed = _integer("seed", seed, 0)
        if not train.rows:
            raise DataError("no rows; expected at least one row per partition")
        self.valid: DataSource | None = None
        self.valid_rows = 0
        if isinstance(valid, int | float):
            self.valid_rows = _valid_rows(valid, train.rows)
        else:
            self.valid = valid
            if not valid.rows:
                raise DataError("valid: no rows; give at least one, or valid=0 for no validation data")
            same_columns(valid.columns, train.columns, "valid", "the training data")
        left = train.rows - self.valid_rows
        if self.partitions > left:
            raise DataError(
                f"partitions: {self.partitions} given, but only {left} rows are left to train on; expected at most "
                "one partition per row: give fewer partitions or more data"
            )
        settings = (self.partitions, self.seed, self.valid.digest() if self.valid else self.valid_rows)
        self.source = digest((VERSION, train.digest(), settings))

    def write(self, folder: Path) -> Manifest:
        """Write all files of the dataset, and return its manifest."""
        scratch = folder / "scratch"
        scratch.mkdir()
        self._not_finite = {"training": Counter[str](), "validation": Counter[str]()}
        memory = sys.maxsize if self.train.in_memory else MEMORY
        rows = _Rows(shuffled(self.train.batches(), self.seed, scratch=scratch, memory=memory))
        held_out: Iterable[Any] = rows.take(self.valid_rows)
        if self.valid is not None:
            order = [column.name for column in self.train.columns]
            held_out = (batch.select(order) for batch in self.valid.batches())
        valid_rows = self.valid_rows if self.valid is None else self.valid.rows
        valid = self._write_file(folder, "valid.arrow", held_out, valid_rows) if valid_rows else None
        small, larger = divmod(self.train.rows - self.valid_rows, self.partitions)
        train = []
        for index in range(self.partitions):
            count = small + (index < larger)
            train.append(self._write_file(folder, f"train-{index:05d}.arrow", rows.take(count), count))
        shutil.rmtree(scratch)
        return Manifest(
            source=self.source,
            seed=self.seed,
            partitions=self.partitions,
            columns=self.train.columns,
            train=tuple(train),
            valid=valid,
            not_finite={part: dict(sorted(found.items())) for part, found in self._not_finite.items() if found},
        ).sealed()

    def _write_file(self, folder: Path, name: str, batches: Iterable[Any], expected: int) -> DataFile:
        path = folder / name
        part = "validation" if name == "valid.arrow" else "training"
        rows = write_rows(path, self.train.columns, batches, self._not_finite[part])
        if rows != expected:
            raise DataError(f"{name}: {rows} rows instead of {expected}: the input changed while it was read")
        return DataFile(name, rows, path.stat().st_size, checksum(path))


def build(job: Build, to: str | os.PathLike[str] | None) -> Path:
    """Return the folder of the dataset: an existing one with the same content, or a new one."""
    target = None if to is None else Path(to).absolute()
    parent = Path(".hoptree/data").absolute() if target is None else target.parent
    found = _find_below(parent, job.source) if target is None else _occupied(target, job.source)
    if found is not None:
        return found
    with staging(parent) as outer:
        folder = outer / "dataset"
        folder.mkdir()
        manifest = job.write(folder)
        write_manifest(folder, manifest)
        destination = target or parent / manifest.fingerprint
        if publish(folder, destination):
            return destination
        if target is not None:  # another process was faster
            _occupied(target, job.source)
        elif not _intact(destination):
            destination.rename(outer / "damaged")
            publish(folder, destination)
    return destination


def _find_below(parent: Path, source: str) -> Path | None:
    for path in sorted(parent.glob(f"*/{NAME}")):
        try:
            if read_manifest(path.parent).source == source:
                return path.parent
        except DataError:
            continue  # damaged or of another version: build it again
    return None


def _intact(folder: Path) -> bool:
    try:
        read_manifest(folder)
    except DataError:
        return False
    return True


def _occupied(target: Path, source: str) -> Path | None:
    """Return the target if it holds this dataset, None if it is free; raise an error for anything else."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    if not (target / NAME).exists():
        raise DataError(f"to: {target} exists and is not a dataset; give a path that is free")
    try:
        holds = read_manifest(target).source
    except DataChangedError as error:
        raise DataError(
            f"to: a damaged dataset is there; remove {target}, or give another path ({error})"
        ) from error
    if holds != source:
        raise DataError(f"to: {target} holds another dataset; give another path, or remove it first")
    return target


@final
class _Rows:
    """The shuffled rows, consumed from the front."""

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._rest: Any = None

    def take(self, rows: int) -> Iterator[Any]:
        """Yield batches with this many rows in total, or fewer at the end."""
        while rows:
            piece = self._rest if self._rest is not None else next(self._pieces, None)
            if piece is None:
                return
            count = min(rows, piece.num_rows)
            yield piece.slice(0, count)
            self._rest = piece.slice(count) if count < piece.num_rows else None
            rows -= count


def _integer(name: str, value: int, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise DataError(f"{name}: {value!r}; expected a whole number, at least {least}")
    return number


def _valid_rows(valid: float, rows: int) -> int:
    if isinstance(valid, bool) or not math.isfinite(valid) or not 0 <= valid < 1:
        raise DataError(
            f"valid: {valid!r}; expected a fraction of the rows from 0 (no validation data) to below 1, "
            f"for example 0.2, or separate validation data"
        )
    return max(1, round(rows * valid)) if valid else 0
