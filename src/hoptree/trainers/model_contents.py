"""Walk a model object, to find what its state lacks and what models share."""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hoptree.trainers.state_digests import array_digest, text_digest

_MOST = 5_000  # at most so many leaves per model
_DEEPEST = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (Mapping, list, tuple, deque, set, frozenset)
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays, tensors, generators and plain values inside an object, with their paths."""
    queue: deque[tuple[str, Any, int]] = deque([(path, value, 0)])
    seen: set[int] = set()
    count = 0
    while queue and count < _MOST:
        location, found, depth = queue.popleft()
        if isinstance(found, _PLAIN) or is_array(found) or is_generator(found) or content_repr(found) is not None:
            count += 1
            yield location, found
        elif id(found) not in seen and depth < _DEEPEST and not isinstance(found, _OPAQUE):
            seen.add(id(found))
            queue.extend((name, part, depth + 1) for name, part in _parts(location, found))


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for number, (name, part) in enumerate(value.items()):
            yield f"{path}[{name if isinstance(name, str | int) else number!r}]", part
    elif isinstance(value, list | tuple | deque):
        for number, part in enumerate(value):
            yield f"{path}[{number}]", part
    elif isinstance(value, set | frozenset):
        yield path, repr(sorted(map(repr, value)))
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            yield f"{path}.{name}", part


def content_repr(value: Any) -> str | None:
    """Return the repr of an object without attributes, such as an iterator; None if it shows no content.

    >>> import itertools
    >>> content_repr(itertools.count(3)), content_repr(object())
    ('count(3)', None)
    """
    if hasattr(value, "__dict__") or isinstance(value, _CONTAINERS):
        return None
    representation = repr(value)
    return None if " at 0x" in representation else representation  # an address is not content


def is_array(value: Any) -> bool:
    """Return whether a value is a numpy array or a tensor."""
    return isinstance(value, np.ndarray) or (callable(getattr(value, "data_ptr", None)) and hasattr(value, "shape"))


def is_generator(value: Any) -> bool:
    """Return whether a value is a random number generator with a state."""
    known = random.Random | np.random.Generator | np.random.RandomState
    return isinstance(value, known) or (hasattr(value, "manual_seed") and hasattr(value, "get_state"))


def digest(value: Any) -> str:
    """Return a digest of a leaf."""
    if isinstance(value, random.Random):
        return text_digest(repr(value.getstate()))
    if isinstance(value, np.random.Generator):
        return text_digest(repr(value.bit_generator.state))
    if isinstance(value, np.random.RandomState):
        return text_digest(repr(value.get_state()))
    if is_generator(value):  # torch's
        return array_digest(np.asarray(value.get_state()))
    if isinstance(value, np.ndarray):
        return array_digest(value)
    if is_array(value):
        return array_digest(np.asarray(value.detach().cpu()))
    return text_digest(f"{type(value).__name__} {value!r}")


def address(value: Any) -> int | None:
    """Return the address of an array's memory; None if it has none."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return int(value.__array_interface__["data"][0]) if value.nbytes else None
    if is_array(value):
        return value.untyped_storage().data_ptr() or None if hasattr(value, "untyped_storage") else None
    return None
