"""Named arrays as bytes: the types that a state may hold, and the fingerprint of a set of arrays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from hoptree.store.errors import StateFormatError

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]
    Arrays: TypeAlias = Mapping[str, Array]

# The types that both numpy and safetensors support, by numpy's name.
CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
NAMES = {code: name for name, code in CODES.items()}


def fingerprint(arrays: Arrays) -> str:
    """Return the SHA-256 over the arrays in name order: name, type, shape and every bit.

    Equal fingerprints mean equal arrays, whatever their memory layout; 0.0 and -0.0 differ.

    >>> import numpy as np
    >>> fingerprint({"w": np.zeros((2, 3))}) == fingerprint({"w": np.zeros((3, 2)).T})
    True
    """
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = contiguous(name, arrays[name])
        # JSON is self-delimiting, and type and shape give the number of bytes: no two sets give the same stream.
        total.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        total.update(raw(array))
    return total.hexdigest()


def contiguous(name: str, array: Array) -> Array:
    """Return the array in C order and little-endian (itself if possible); raise an error for other types."""
    import numpy as np

    if not isinstance(array, np.ndarray):
        raise StateFormatError(f"arrays[{name!r}]: a {type(array).__name__}; expected a numpy array")
    if array.dtype.name not in CODES:
        raise StateFormatError(
            f"arrays[{name!r}]: of type {array.dtype}; expected one of {', '.join(CODES)}; "
            "store other types as a view of one of these, and record that in the meta"
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def raw(array: Array) -> memoryview:
    """Return the bytes of an array in C order, without a copy."""
    import numpy as np

    return array.reshape(-1).view(np.uint8).data
