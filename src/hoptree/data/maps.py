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
from typing import TYPE_CHECKING, Any, final

from hoptree.data.errors import DataChangedError
from hoptree.data.manifest import Column, DataFile
from hoptree.data.verified import Stamp, verify

if TYPE_CHECKING:
    import numpy as np


@final
class Maps:
    """The files of one dataset, each mapped when it is first asked for."""

    def __init__(self, folder: Path, columns: Sequence[Column]) -> None:
        self._folder = folder
        self._columns = columns
        self._kept: dict[str, tuple[Stamp, Any]] = {}

    def read(self, file: DataFile, what: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return a file's columns; it is compared with its checksum before it is mapped, once per machine.

        One that was replaced or written since it was mapped is refused: a map shows what is written to its file
        later, so that rows could change in the middle of a study. ``what`` says in errors what the file holds.
        """
        from hoptree.data.layout import values_of

        path = self._folder / file.name
        stamp = _visit(path)
        if stamp is None or stamp.size != file.bytes:
            raise DataChangedError(
                f"{path}: missing or changed since the dataset was opened, so that there is no {what}; build the "
                "dataset again"
            )
        known, batch = self._kept.get(file.name) or self._mapped(path, file, what)
        if known != stamp:
            if known._replace(changed=stamp.changed) != stamp:
                raise _replaced(path)
            known = verify(path, file, what)  # its name, its owner or its number of links changed: is that all?
        self._kept[file.name] = known, batch
        return values_of(batch, self._columns)

    def _mapped(self, path: Path, file: DataFile, what: str) -> tuple[Stamp, Any]:
        """Map a file whose content was compared; what was put in its place in between is refused."""
        from hoptree.data.layout import map_file

        verified = verify(path, file, what)
        batch = map_file(path)
        if Stamp.of(path.stat()) != verified:
            raise _replaced(path)
        return verified, batch


def _replaced(path: Path) -> DataChangedError:
    return DataChangedError(
        f"{path}: replaced or written since it was mapped; Dataset.open({str(path.parent)!r}).verify() "
        f"tells whether its content changed: open the dataset again, or build it again"
    )


def _visit(path: Path) -> Stamp | None:
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
    return Stamp.of(found)
