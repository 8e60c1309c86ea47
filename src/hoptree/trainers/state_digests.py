"""Digests of states by name: compare two states and name the differences, without keeping both."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from hoptree.store import exact_json
from hoptree.trainers.base import ModelState

_LARGE = 1 << 16  # bytes of an array
Digests: TypeAlias = dict[str, str]  # of arrays by name, of the JSON by path


def digests(state: ModelState) -> Digests:
    """Return a digest for each array and for each value of the JSON.

    >>> sorted(digests(ModelState({"w": np.zeros(2)}, {"groups": [{"lr": 0.1}]})))
    ['meta.groups.0.lr', 'w']
    """
    found = {name: array_digest(array) for name, array in state.arrays.items()}
    return found | {path: text_digest(repr(value)) for path, value in _leaves("meta", state.meta)}


def array_digest(array: np.ndarray[Any, Any]) -> str:
    """Return a digest of an array's type, shape and bits."""
    whole = np.ascontiguousarray(array)
    hashed = blake2b(f"{array.dtype.str} {array.shape}".encode(), digest_size=12)
    hashed.update(whole.reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def metric_digests(metrics: Mapping[str, float]) -> Digests:
    """Return a digest for each metric; NaN equals NaN."""
    return {f"metric {name}": text_digest(repr(value)) for name, value in metrics.items()}


def differing(one: Mapping[str, str], two: Mapping[str, str]) -> list[str]:
    """Return the names whose digests differ, in the order of the first mapping."""
    return [name for name in {**one, **two} if one.get(name) != two.get(name)]


def combined(parts: Mapping[str, Mapping[str, str]]) -> str:
    """Return one digest of many, in hexadecimal."""
    return text_digest(json.dumps({name: dict(part) for name, part in parts.items()}, sort_keys=True))


def text_digest(value: str) -> str:
    """Return the digest of a text."""
    return blake2b(value.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def copy_state(state: ModelState, *, mapped: bool = False) -> ModelState:
    """Return a copy of a state as another process would get it: read-only, with its JSON parsed again.

    With ``mapped``, large arrays are in files without a name, for a state that is larger than memory.
    """
    arrays = {
        name: _mapped_copy(array) if mapped and array.nbytes >= _LARGE else np.array(array, order="C", copy=True)
        for name, array in state.arrays.items()
    }
    for array in arrays.values():
        array.flags.writeable = False
    return ModelState(arrays, exact_json.load(exact_json.dump(state.meta, "meta")))


def _mapped_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with tempfile.TemporaryFile(prefix="hoptree-state-") as file:
        copy = np.memmap(file, dtype=array.dtype, mode="w+", shape=array.shape)
    np.copyto(copy, array)
    return copy


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name in sorted(value, key=str):
            yield from _leaves(f"{path}.{name}", value[name])
    elif isinstance(value, list | tuple) and value:
        for index, item in enumerate(value):
            yield from _leaves(f"{path}.{index}", item)
    else:
        yield path, list(value) if isinstance(value, tuple) else value
