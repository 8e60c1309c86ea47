# mypy: disable-error-code="import-untyped"
"""The data files: Arrow IPC file format, uncompressed, one record batch, values aligned to 64 bytes.

A scalar column is a primitive array, a column of n-d rows a fixed-shape tensor, text a large string. Booleans are
stored as one byte each (uint8), because Arrow stores them as bits, which numpy cannot map. Arrow's writer aligns
only to 8 bytes, so buffers are padded to 64, the schema contains a padding that moves the first of them to a
multiple of 64, and text, whose offsets Arrow trims, comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from hoptree.data.errors import DataChangedError
from hoptree.data.manifest import Column

ALIGNMENT: Final = 64


def stored_dtype(column: Column) -> np.dtype[Any]:
    """Return the type of a column's values on disk."""
    return np.dtype("uint8" if column.dtype == "bool" else column.dtype)


def row_bytes(column: Column) -> int:
    """Return the bytes of a row of numbers on disk; of text, the bytes of its offset."""
    return 8 if column.is_string else stored_dtype(column).itemsize * column.size


def file_order(columns: Sequence[Column]) -> list[Column]:
    """Return the columns in the order of the file: numbers first, then text."""
    return sorted(columns, key=lambda column: column.is_string)


def padding(size: int) -> bytes:
    """Return the zeros that pad a buffer to the alignment."""
    return bytes(-size % ALIGNMENT)


def write_file(path: Path, columns: Sequence[Column], rows: int, buffers: Mapping[str, list[Any]]) -> None:
    """Write one data file from padded buffers: a column's values, or the offsets and bytes of its text."""
    columns = file_order(columns)
    schema = _aligned_schema(columns)
    arrays = [_array(column, rows, buffers[column.name]) for column in columns]
    with pa.OSFile(str(path), "wb") as sink:
        _write(sink, schema, arrays)


def map_file(path: Path) -> Any:
    """Map a data file and return its record batch; the map lives as long as one of its buffers."""
    try:
        with pa.memory_map(str(path)) as source:
            return ipc.open_file(source).get_batch(0)
    except pa.ArrowInvalid as error:
        raise DataChangedError(
            f"{path}: was changed: not an Arrow file ({error}); build the dataset again"
        ) from error


def values_of(batch: Any, columns: Sequence[Column]) -> dict[str, np.ndarray[Any, Any]]:
    """Return a mapped file's columns: numbers as read-only views of the map, text copied into arrays of strings."""
    return {column.name: _values(column, batch.column(column.name)) for column in columns}


def _values(column: Column, array: Any) -> np.ndarray[Any, Any]:
    if column.is_string:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    storage = array.storage if column.shape else array
    flat = np.frombuffer(storage.buffers()[-1], stored_dtype(column), count=len(array) * column.size)
    return flat.view(column.dtype).reshape(len(array), *column.shape)


def _array(column: Column, rows: int, buffers: list[Any]) -> Any:
    if column.is_string:
        return pa.Array.from_buffers(pa.large_string(), rows, [None, *buffers])
    type_ = _type(column)
    if not column.shape:
        return pa.Array.from_buffers(type_, rows, [None, *buffers])
    values = pa.Array.from_buffers(type_.value_type, rows * column.size, [None, *buffers])
    storage = pa.Array.from_buffers(type_.storage_type, rows, [None], children=[values])
    return pa.ExtensionArray.from_storage(type_, storage)


def _type(column: Column) -> Any:
    if column.is_string:
        return pa.large_string()
    value = pa.from_numpy_dtype(stored_dtype(column))
    return pa.fixed_shape_tensor(value, column.shape) if column.shape else value


def _aligned_schema(columns: Sequence[Column]) -> Any:
    """Return the schema with the padding that aligns the first buffer; its offset depends only on the schema."""
    fields = [pa.field(column.name, _type(column), nullable=False) for column in columns]
    row = [_array(column, 1, _blank_row(column)) for column in columns]
    for pad in range(0, ALIGNMENT, 8):
        schema = pa.schema(fields, metadata={"padding": " " * pad})
        sink = pa.BufferOutputStream()
        _write(sink, schema, row)
        probe = sink.getvalue()
        first = ipc.open_file(probe).get_batch(0).column(0)
        first = first.storage if isinstance(first, pa.ExtensionArray) else first
        body = next(buffer for buffer in first.buffers() if buffer is not None)
        if (body.address - probe.address) % ALIGNMENT == 0:
            return schema
    raise AssertionError(f"no padding aligns a file of {columns}")


def _blank_row(column: Column) -> list[Any]:
    if column.is_string:
        return [pa.py_buffer(bytes(16)), pa.py_buffer(b"")]
    size = row_bytes(column)
    return [pa.py_buffer(bytes(size) + padding(size))]


def _write(sink: Any, schema: Any, arrays: list[Any]) -> None:
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression=None)) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
