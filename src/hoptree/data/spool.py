# mypy: disable-error-code="import-untyped"
"""Write a data file: append rows to raw files, column by column, then map these and write one file.

A data file has a single record batch of any size; thanks to the raw files this needs no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from hoptree.data.layout import padding, row_bytes, stored_dtype, write_file
from hoptree.data.manifest import Column


def write_rows(path: Path, columns: Sequence[Column], batches: Iterable[Any], not_finite: Counter[str]) -> int:
    """Write the rows of all batches, in order, to one data file, and return their number.

    Count NaN and infinite values by column on the way.
    """
    rows = 0
    with ExitStack() as files:
        spools = [
            (_TextSpool if column.is_string else _NumberSpool)(
                path.with_suffix(f".{index}"), column, files, not_finite
            )
            for index, column in enumerate(columns)
        ]
        for batch in batches:
            rows += batch.num_rows
            for spool, array in zip(spools, batch.columns, strict=True):
                spool.append(array)
        buffers = {column.name: spool.finish() for column, spool in zip(columns, spools, strict=True)}
        write_file(path, columns, rows, buffers)
    return rows


@final
class _RawFile:
    """A growing file that is padded and mapped at the end; closed and removed with ``files``."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        self._path = path
        self.size = 0
        files.callback(path.unlink)
        self._file = files.enter_context(path.open("wb", buffering=0))

    def append(self, data: memoryview) -> None:
        with data.cast("B") as rest:
            self.size += len(rest)
            done = 0
            while done < len(rest):  # one write call writes at most 2 GiB
                done += self._file.write(rest[done:])

    def finish(self) -> Any:
        if self.size:
            self._file.write(padding(self.size))
        self._file.close()
        if not self.size:
            return pa.py_buffer(b"")
        with pa.memory_map(str(self._path)) as source:
            return source.read_buffer()


@final
class _NumberSpool:
    def __init__(self, path: Path, column: Column, files: ExitStack, not_finite: Counter[str]) -> None:
        self._column = column
        self._width = row_bytes(column)
        self._raw = _RawFile(path, files)
        self._not_finite = not_finite

    def append(self, array: Any) -> None:
        start = array.offset * self._width
        data = memoryview(array.buffers()[1])[start : start + len(array) * self._width]
        self._count(np.frombuffer(data, stored_dtype(self._column)))
        self._raw.append(data)

    def _count(self, values: np.ndarray[Any, Any]) -> None:
        """Count NaN and infinite values; the extremes show whether there are any, without allocating memory."""
        if values.dtype.kind != "f" or not len(values):
            return
        with np.errstate(invalid="ignore"):
            extremes = np.array([values.min(), values.max()])
        if not np.isfinite(extremes).all():
            self._not_finite[self._column.name] += len(values) - int(np.count_nonzero(np.isfinite(values)))

    def finish(self) -> list[Any]:
        return [self._raw.finish()]


@final
class _TextSpool:
    def __init__(self, path: Path, column: Column, files: ExitStack, not_finite: Counter[str]) -> None:
        self._offsets = _RawFile(path.with_name(f"{path.name}-offsets"), files)
        self._bytes = _RawFile(path.with_name(f"{path.name}-bytes"), files)
        self._offsets.append(memoryview(bytes(8)))

    def append(self, array: Any) -> None:
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64, count=len(array) + 1, offset=8 * array.offset)
        self._offsets.append(memoryview(ends[1:] - ends[0] + self._bytes.size))
        if data is not None:
            self._bytes.append(memoryview(data)[int(ends[0]) : int(ends[-1])])

    def finish(self) -> list[Any]:
        return [self._offsets.finish(), self._bytes.finish()]
