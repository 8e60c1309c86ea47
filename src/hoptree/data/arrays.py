# mypy: disable-error-code="import-untyped"
"""Rows from memory: anything that numpy can read becomes a column, or raises an error with its name.

Inside the package a batch of rows is an Arrow record batch with two kinds of columns: ``fixed_size_binary`` (the
bytes of a row of numbers, whatever its type and shape) and ``large_string``. Shuffling and writing need no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np
import pyarrow as pa
import xxhash

from hoptree.data.errors import DataError
from hoptree.data.layout import row_bytes, stored_dtype
from hoptree.data.manifest import DTYPES, STRING, Column, digest


@final
class ArraySource:
    """Columns in memory."""

    in_memory = True

    def __init__(self, columns: Mapping[str, Any], *, what: str = "from_arrays") -> None:
        if not columns:
            raise DataError(f"{what}: no columns; give at least one array by name, for example x=x, y=y")
        parsed = [_parse(name, values) for name, values in columns.items()]
        self.columns = tuple(column for column, _ in parsed)
        self._arrays = [array for _, array in parsed]
        self.rows = len(self._arrays[0])
        for column, array in parsed:
            if len(array) != self.rows:
                raise DataError(
                    f"{column.name}: {len(array)} rows, but {self.columns[0].name} has {self.rows}; "
                    f"all columns need one value per row"
                )

    def batches(self) -> Iterator[Any]:
        """Yield all rows at once, without a copy."""
        yield pa.RecordBatch.from_arrays(self._arrays, names=[column.name for column in self.columns])

    def digest(self) -> str:
        """Return a digest of the content."""
        hashes = []
        for array in self._arrays:
            state = xxhash.xxh3_128()
            for buffer in array.buffers():
                state.update(b"" if buffer is None else buffer)
            hashes.append(state.hexdigest())
        return digest(("arrays", self.rows, self.columns, hashes))


def number_rows(column: Column, values: np.ndarray[Any, Any]) -> Any:
    """Return rows of numbers in the package's internal format, without a copy if possible."""
    stored = np.ascontiguousarray(values).view(stored_dtype(column)).reshape(-1)
    return pa.Array.from_buffers(pa.binary(row_bytes(column)), len(values), [None, pa.py_buffer(stored)])


def check_column(where: str, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise an error for types and shapes that a dataset cannot hold."""
    if dtype not in DTYPES:
        raise DataError(
            f"{where}: values of type {dtype}; expected booleans, integers, floats (16 to 64 bits) or strings: "
            f"convert the column first"
        )
    if shape and dtype == STRING:
        raise DataError(f"{where}: strings of shape {list(shape)} per row; expected one string per row: split it")
    if 0 in shape:
        raise DataError(f"{where}: rows of shape {list(shape)} hold no values; leave the column out")


def _parse(name: str, values: Any) -> tuple[Column, Any]:
    array = _as_array(name, values)
    if array.dtype.kind in "OUT":
        strings = _strings(name, array, values)
        return Column(name, STRING), strings
    if array.dtype.byteorder not in "=|":
        array = array.astype(array.dtype.newbyteorder("="))
    check_column(name, array.dtype.name, array.shape[1:])
    column = Column(name, array.dtype.name, array.shape[1:])
    return column, number_rows(column, array)


def _as_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name}: cannot be read as an array ({error}); give a numpy array, a list of rows of equal shape, a "
            f"pandas series or a CPU tensor"
        ) from error
    if array.ndim == 0:
        raise DataError(f"{name}: a single {type(values).__name__}; expected an array with one value per row")
    return array


def _strings(name: str, array: np.ndarray[Any, Any], values: Any) -> Any:
    if array.ndim > 1 and array.dtype.kind != "O":
        check_column(name, STRING, array.shape[1:])
    # numpy silently converts ["a", 1] to strings, so check the original list
    given = list(values) if isinstance(values, list | tuple) else array.tolist()
    for row, value in enumerate(given):
        if not isinstance(value, str):
            raise DataError(
                f"{name}: row {row} holds {value!r:.60} ({type(value).__name__}) in a column of strings or "
                f"objects; expected strings only, or numbers in an array with a numeric type"
            )
    try:
        return pa.array(given, pa.large_string())
    except UnicodeEncodeError as error:
        raise DataError(f"{name}: a string is not valid Unicode ({error})") from None
