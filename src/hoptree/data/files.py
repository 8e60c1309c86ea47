"""Rows from files, read batch by batch: never a whole file in memory.

The memory needed is one batch (about 16 MiB) and, for Parquet, what its reader keeps of one row group.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from hoptree.data.convert import rows_of
from hoptree.data.errors import DataError
from hoptree.data.formats import ARROW, PARQUET, inspect, read
from hoptree.data.layout import row_bytes
from hoptree.data.manifest import NAME, Column, checksum, digest, same_columns

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

BATCH_BYTES: Final = 16 << 20
BATCH_ROWS: Final = 1 << 14


@final
class FileSource:
    """The rows of a list of files, in the order of the list."""

    in_memory = False

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.rows = 0
        self.columns: tuple[Column, ...] = ()
        first = paths[0]
        for path in paths:
            rows, columns = inspect(path)
            if not rows:
                continue
            if not self.rows:
                self.columns, first = columns, path
            same_columns(columns, self.columns, str(path), str(first))
            self.rows += rows

    def batches(self) -> Iterator[Any]:
        """Yield all rows in small batches."""
        names = [column.name for column in self.columns]
        step = BATCH_BYTES // max(1, sum(row_bytes(column) for column in self.columns))
        step = min(BATCH_ROWS, max(1, step))
        for path in self._paths:
            for batch in read(path, step):
                yield rows_of(batch.select(names), self.columns, str(path))

    def digest(self) -> str:
        """Return a digest of the files' bytes, independent of their location."""
        return digest(("files", [(path.suffix in PARQUET, checksum(path)) for path in self._paths]))


def parquet_files(files: object, what: str = "from_parquet") -> list[Path]:
    """Return the files that match a path, a folder, a glob or a list of these."""
    if isinstance(files, list | tuple):
        return [path for file in files for path in parquet_files(file, what)] or _nothing(what, "an empty list")
    if not isinstance(files, str | os.PathLike):
        raise DataError(f"{what}: a {type(files).__name__}; expected a path, a glob or a list of paths")
    path = Path(files)
    if path.is_dir():
        return [file for file in sorted(path.iterdir()) if file.suffix in PARQUET] or _nothing(what, str(path))
    if path.exists():
        return [path]
    return [Path(match) for match in sorted(glob.glob(str(path), recursive=True))] or _nothing(what, str(path))


def folder_files(folder: object, what: str = "from_folder") -> list[Path]:
    """Return the Arrow and Parquet files of a folder, sorted by name."""
    if not isinstance(folder, str | os.PathLike):
        raise DataError(f"{what}: a {type(folder).__name__}; expected the path of a folder")
    path = Path(folder)
    if not path.is_dir():
        raise DataError(f"{what}: {path} is not a folder; expected one with Arrow or Parquet files")
    if (path / NAME).exists():
        raise DataError(f"{what}: {path} is a dataset already; use Dataset.open({str(path)!r})")
    return [file for file in sorted(path.iterdir()) if file.suffix in PARQUET + ARROW] or _nothing(what, str(path))


def _nothing(what: str, where: str) -> list[Path]:
    suffixes = ", ".join(PARQUET if what == "from_parquet" else PARQUET + ARROW)
    raise DataError(f"{what}: no files found at {where}; expected files ending in {suffixes}, or a glob for them")
