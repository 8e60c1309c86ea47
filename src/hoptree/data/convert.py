# mypy: disable-error-code="import-untyped"
"""Conversion of Arrow types: numbers, lists of constant length as n-d rows, text.

A missing float becomes NaN (pandas writes NaN as missing); any other missing value is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from hoptree.data.arrays import check_column, number_rows
from hoptree.data.errors import DataError
from hoptree.data.manifest import STRING, Column


def columns_of(sample: Any, where: str) -> tuple[Column, ...]:
    """Return the columns of a file, given its first row."""
    names = sample.schema.names
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{where}: two columns are called {name}; rename one of them")
    if not names:
        raise DataError(f"{where}: no columns; expected at least one")
    return tuple(
        _column(name, array, f"{where}: {name}") for name, array in zip(names, sample.columns, strict=True)
    )


def rows_of(batch: Any, columns: Sequence[Column], where: str) -> Any:
    """Return a batch in the package's internal format: the bytes of numbers, and text."""
    arrays = []
    for column, array in zip(columns, batch.columns, strict=True):
        location = f"{where}: {column.name}"
        if column.is_string:
            arrays.append(_without_nulls(_plain(array), location).cast(pa.large_string()))
        else:
            arrays.append(number_rows(column, _numbers(array, column.shape, location)))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _column(name: str, sample: Any, where: str) -> Column:
    shape: list[int] = []
    array = sample
    while True:
        if isinstance(array, pa.FixedShapeTensorArray):
            shape += array.to_numpy_ndarray().shape[1:] if _is_permuted(array.type) else array.type.shape
            array = array.storage.flatten()
        array = _plain(array)
        if not _is_list(array.type):
            break
        shape.append(len(_without_nulls(array, where)[0]) if len(array) else 0)
        array = array.flatten()
    text = types.is_string(array.type) or types.is_large_string(array.type) or types.is_string_view(array.type)
    numeric = types.is_boolean(array.type) or types.is_integer(array.type) or types.is_floating(array.type)
    dtype = STRING if text else np.dtype(array.type.to_pandas_dtype()).name if numeric else str(array.type)
    check_column(where, dtype, tuple(shape))
    return Column(name, dtype, tuple(shape))


def _is_permuted(type_: Any) -> bool:
    return bool(type_.permutation) and list(type_.permutation) != sorted(type_.permutation)


def _is_list(type_: Any) -> bool:
    return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_))


def _plain(array: Any) -> Any:
    """Return an array without dictionary encoding and without an extension type."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if types.is_dictionary(array.type) else array


def _without_nulls(array: Any, where: str) -> Any:
    if array.null_count:
        raise DataError(f"{where}: {array.null_count} missing values; fill them, or leave their rows out")
    return array


def _numbers(array: Any, shape: tuple[int, ...], where: str) -> np.ndarray[Any, Any]:
    if isinstance(array, pa.FixedShapeTensorArray) and not array.null_count:
        if _is_permuted(array.type):
            return np.asarray(array.to_numpy_ndarray())
        return _numbers(array.storage.flatten(), (), where).reshape(len(array), *shape)
    array = _plain(array)
    if shape:
        lengths = pc.unique(pc.list_value_length(_without_nulls(array, where))).to_pylist()
        if lengths not in ([], [shape[0]]):
            raise DataError(
                f"{where}: lists of {sorted(lengths)} values, but the first row has {shape[0]}; expected the same "
                f"length in every row: pad or cut them"
            )
        return _numbers(array.flatten(), shape[1:], where).reshape(len(array), *shape)
    if not types.is_floating(array.type):
        array = _without_nulls(array, where)
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return values
