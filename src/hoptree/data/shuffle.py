# mypy: disable-error-code="import-untyped"
"""The shuffle: a sort by random keys, in bounded memory.

Row i of the input draws the i-th 64-bit word of ``PCG64(seed)``; the shuffled order is the order of these words
(for equal words, the input order). So it depends only on the seed and the row count: not on columns, files, batch
sizes or memory. It uses raw words because numpy guarantees that they never change, unlike permutations.

Rows that do not fit in memory are distributed over files by the leading bits of their word. Each file is sorted in
turn, or distributed again by the next bits if it is too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

KEY: Final = "\0key"  # columns are accessed by position, so a user's column may have this name
BITS: Final = 6  # 64 open files at a time
PIECE: Final = 16 << 20  # bytes of sorted rows to yield at a time


def shuffled(batches: Iterable[Any], seed: int, *, scratch: Path, memory: int) -> Iterator[Any]:
    """Yield all rows in shuffled order, with about twice ``memory`` bytes in memory at most."""
    words = np.random.PCG64(seed)
    keyed = (_with_keys(batch, words.random_raw(batch.num_rows)) for batch in batches)
    for piece in _sorted(keyed, scratch / "bucket", memory, 64):
        yield pa.RecordBatch.from_arrays(piece.columns[:-1], schema=piece.schema.remove(piece.num_columns - 1))


def _with_keys(batch: Any, keys: Any) -> Any:
    schema = batch.schema.append(pa.field(KEY, pa.uint64()))
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(keys)], schema=schema)


def _keys(batch: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.asarray(batch.column(batch.num_columns - 1))


def _sorted(batches: Iterable[Any], prefix: Path, memory: int, bits_left: int) -> Iterator[Any]:
    """Yield the rows in the order of their keys, which differ only in the last ``bits_left`` bits."""
    remaining = iter(batches)
    buffered: list[Any] = []
    rows = size = 0
    for batch in remaining:
        buffered.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if size > memory and rows > 1 and bits_left > BITS:
            break
    else:
        yield from _sorted_in_memory(buffered)
        return
    shift = bits_left - BITS
    buckets = _scatter(chain(_drain(buffered), remaining), prefix, shift)
    for bucket in buckets:
        with pa.memory_map(str(bucket)) as source, ipc.open_stream(source) as stream:
            yield from _sorted(stream, bucket, memory, shift)
        bucket.unlink()


def _drain(buffered: list[Any]) -> Iterator[Any]:
    buffered.reverse()
    while buffered:
        yield buffered.pop()


def _sorted_in_memory(buffered: list[Any]) -> Iterator[Any]:
    if not buffered:
        return
    rows = buffered[0] if len(buffered) == 1 else pa.concat_batches(buffered)
    buffered.clear()
    order = np.argsort(_keys(rows), kind="stable")
    step = max(1, PIECE * rows.num_rows // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.take(pa.array(order[start : start + step]))


def _scatter(batches: Iterable[Any], prefix: Path, shift: int) -> list[Path]:
    """Append every row to the file of its key's leading bits, in input order; return the files in key order."""
    buckets = 1 << BITS
    writers: dict[Path, Any] = {}
    paths = [prefix.with_name(f"{prefix.name}-{number:02d}") for number in range(buckets)]
    with ExitStack() as stack:
        for batch in batches:
            number = (_keys(batch) >> np.uint64(shift)) & np.uint64(buckets - 1)
            order = np.argsort(number, kind="stable")
            bounds = np.searchsorted(number[order], np.arange(buckets + 1, dtype=np.uint64)).tolist()
            rows = batch.take(pa.array(order))
            for path, start, stop in zip(paths, bounds[:-1], bounds[1:], strict=True):
                if stop > start and path not in writers:
                    sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                    writers[path] = stack.enter_context(ipc.new_stream(sink, batch.schema))
                if stop > start:
                    writers[path].write_batch(rows.slice(start, stop - start))
    return [path for path in paths if path in writers]
