"""Maps that are kept: a worker visits the same partitions again and again, and maps every file once.

What is kept of a file is its map: address space, and page tables of 1/512 of what was touched. The data stays in
the page cache, which the system takes back when memory is short, so a dataset may be larger than memory. Text is
copied again at every visit: as Python strings it is memory that nobody can take back, and keeping it would gather
the text of all partitions in every worker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from hoptree.data.errors import DataChangedError
from hoptree.data.manifest import Column, DataFile

if TYPE_CHECKING:
    import numpy as np


class _Stamp(NamedTuple):
    """What tells a file from another one in its place, and from itself after a write."""

    device: int
    inode: int
    modified: int
    size: int


@final
class Maps:
    """The files of one dataset, each mapped when it is first asked for."""

    def __init__(self, folder: Path, columns: Sequence[Column]) -> None:
        self._folder = folder
        self._columns = columns
        self._kept: dict[str, tuple[_Stamp, Any]] = {}

    def read(self, file: DataFile) -> dict[str, np.ndarray[Any, Any]]:
        """Return a file's columns; one that was replaced or written since it was mapped is refused.

        A map shows what is written to its file later, so that rows could change in the middle of a study.
        """
        from hoptree.data.layout import map_file, values_of

        path = self._folder / file.name
        stamp = _visit(path)
        if stamp is None or stamp.size != file.bytes:
            raise DataChangedError(
                f"{path}: missing or changed since the dataset was opened; build the dataset again"
            )
        known, batch = self._kept.get(file.name) or (stamp, map_file(path))
        if known != stamp:
            raise DataChangedError(
                f"{path}: replaced or written since it was mapped; Dataset.open({str(self._folder)!r}).verify() "
                f"tells whether its content changed: open the dataset again, or build it again"
            )
        self._kept[file.name] = known, batch
        return values_of(batch, self._columns)


def _visit(path: Path) -> _Stamp | None:
    """Return a file's stamp, None when it is gone; what memory does not hold is read ahead, in order.

    Rows are visited at random, and reading them in from disk one by one takes about twice as long.
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
    return _Stamp(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
