"""Cached memory maps: a worker reads the same partitions repeatedly, and maps every file once.

Only the map of a file is kept: address space, and page tables of 1/512 of the touched size. The data stays in the
page cache, which the system reclaims when memory is short, so a dataset may be larger than memory. Text is copied
again at every call: Python strings cannot be reclaimed, and keeping them would collect the text of all partitions
in every worker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hoptree.data.errors import DataChangedError
from hoptree.data.manifest import Column, DataFile
from hoptree.data.verified import Stamp, verify

if TYPE_CHECKING:
    import numpy as np


@final
class Maps:
    """The files of one dataset, each mapped on first use."""

    def __init__(self, folder: Path, columns: Sequence[Column]) -> None:
        self._folder = folder
        self._columns = columns
        self._cached: dict[str, tuple[Stamp, Any]] = {}

    def read(self, file: DataFile, what: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return a file's columns; it is compared with its checksum before it is mapped, once per machine.

        Raise an error if the file was replaced or written since it was mapped: a map shows later writes to its
        file, so rows could change in the middle of a study. ``what`` describes the file's content in errors.
        """
        from hoptree.data.layout import values_of

        path = self._folder / file.name
        stamp = _stamp_and_prefetch(path)
        if stamp is None or stamp.size != file.bytes:
            raise DataChangedError(
                f"{path}: missing or changed since the dataset was opened, so {what} cannot be read; build the "
                "dataset again"
            )
        known, batch = self._cached.get(file.name) or self._map(path, file, what)
        if known != stamp:
            if known._replace(changed=stamp.changed) != stamp:
                raise _replaced(path)
            known = verify(path, file, what)  # name, owner or number of links changed: check the content
        self._cached[file.name] = known, batch
        return values_of(batch, self._columns)

    def _map(self, path: Path, file: DataFile, what: str) -> tuple[Stamp, Any]:
        """Verify and map a file; raise an error if it was replaced in between."""
        from hoptree.data.layout import map_file

        verified = verify(path, file, what)
        batch = map_file(path)
        if Stamp.of(path.stat()) != verified:
            raise _replaced(path)
        return verified, batch


def _replaced(path: Path) -> DataChangedError:
    return DataChangedError(
        f"{path}: replaced or written since it was mapped; Dataset.open({str(path.parent)!r}).verify() "
        f"checks whether its content changed: open the dataset again, or build it again"
    )


def _stamp_and_prefetch(path: Path) -> Stamp | None:
    """Return a file's stamp, None if it does not exist; start reading it ahead into the page cache.

    Rows are read in random order, and reading them from disk one by one takes about twice as long.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if sys.platform == "linux":
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)
        found = os.fstat(handle)
    finally:
        os.close(handle)
    return Stamp.of(found)
