# mypy: disable-error-code="import-untyped"
"""File formats by suffix: Parquet, Arrow IPC and CSV, read batch by batch, never a whole file in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, ipc

from hoptree.data.convert import columns_of
from hoptree.data.errors import DataError
from hoptree.data.manifest import Column

PARQUET: Final = (".parquet", ".pq")
ARROW: Final = (".arrow", ".feather", ".ipc", ".arrows")
CSV: Final = (".csv",)
CSV_BLOCK: Final = 16 << 20  # bytes to parse at a time; the types are inferred from the first block


def inspect(path: Path) -> tuple[int, tuple[Column, ...]]:
    """Return a file's row count and columns; only the first row is read, for the shape of lists."""
    with _errors_with_path(path):
        if path.suffix in PARQUET:
            with pq.ParquetFile(path) as file:
                rows = file.metadata.num_rows
                sample = next(file.iter_batches(1), None)
        else:
            rows, sample = 0, None
            for batch in _csv(path) if path.suffix in CSV else _arrow(path):
                sample = batch.slice(0, 1) if not rows else sample
                rows += batch.num_rows
    return rows, columns_of(sample, str(path)) if rows else ()


def read(path: Path, step: int) -> Iterator[Any]:
    """Yield a file's rows, at most ``step`` at a time."""
    with _errors_with_path(path):
        if path.suffix in PARQUET:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                yield from file.iter_batches(step)
            return
        for batch in _csv(path) if path.suffix in CSV else _arrow(path):
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)


@contextmanager
def _errors_with_path(path: Path) -> Iterator[None]:
    """Add the file's path to errors of a reader."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        kind, fix = "Arrow IPC", ""
        if path.suffix in PARQUET:
            kind = "Parquet"
        elif path.suffix in CSV:
            kind = "CSV"
            fix = f"; types are taken from its first {CSV_BLOCK >> 20} MiB: fix it, or convert it to Parquet"
        raise DataError(f"{path}: cannot be read as {kind} ({error}){fix}") from error


def _arrow(path: Path) -> Iterator[Any]:
    """Yield the batches of an Arrow IPC file, or of a stream in a file, without reading them yet."""
    with pa.memory_map(str(path)) as source:
        magic = bytes(source.read(6))
        source.seek(0)
        if magic != b"ARROW1":
            yield from ipc.open_stream(source)
            return
        file = ipc.open_file(source)
        for index in range(file.num_record_batches):
            yield file.get_batch(index)


def _csv(path: Path) -> Iterator[Any]:
    blocks = csv.ReadOptions(block_size=CSV_BLOCK)
    quoted = csv.ParseOptions(newlines_in_values=True)  # text may contain newlines
    with csv.open_csv(path, read_options=blocks, parse_options=quoted) as reader:
        yield from reader
