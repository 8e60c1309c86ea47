"""What a model object holds, found by walking it: to say what a state does not carry, and what models share."""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hoptree.trainers.state_digests import array_digest, text

_MOST = 5_000  # leaves of one model that are looked at
_DEEPEST = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (Mapping, list, tuple, deque, set, frozenset)
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield arrays, tensors, generators and plain values within an object, with the path that leads there."""
    waiting: deque[tuple[str, Any, int]] = deque([(path, value, 0)])
    seen: set[int] = set()
    count = 0
    while waiting and count < _MOST:
        where, found, depth = waiting.popleft()
        if isinstance(found, _PLAIN) or is_array(found) or is_generator(found) or shown(found) is not None:
            count += 1
            yield where, found
        elif id(found) not in seen and depth < _DEEPEST and not isinstance(found, _OPAQUE):
            seen.add(id(found))
            waiting.extend((name, part, depth + 1) for name, part in _parts(where, found))


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


def shown(value: Any) -> str | None:
    """Return what an object without attributes says of itself, such as an iterator; None if that says nothing.

    >>> import itertools
    >>> shown(itertools.count(3)), shown(object())
    ('count(3)', None)
    """
    if hasattr(value, "__dict__") or isinstance(value, _CONTAINERS):
        return None
    told = repr(value)
    return None if " at 0x" in told else told  # that is where it lies, not what it holds


def is_array(value: Any) -> bool:
    """Return whether it is an array of numpy, or a tensor."""
    return isinstance(value, np.ndarray) or (callable(getattr(value, "data_ptr", None)) and hasattr(value, "shape"))


def is_generator(value: Any) -> bool:
    """Return whether it draws random numbers, and remembers where it is."""
    known = random.Random | np.random.Generator | np.random.RandomState
    return isinstance(value, known) or (hasattr(value, "manual_seed") and hasattr(value, "get_state"))


def digest(value: Any) -> str:
    """Return a digest of a leaf."""
    if isinstance(value, random.Random):
        return text(repr(value.getstate()))
    if isinstance(value, np.random.Generator):
        return text(repr(value.bit_generator.state))
    if isinstance(value, np.random.RandomState):
        return text(repr(value.get_state()))
    if is_generator(value):  # torch's
        return array_digest(np.asarray(value.get_state()))
    if isinstance(value, np.ndarray):
        return array_digest(value)
    if is_array(value):
        return array_digest(np.asarray(value.detach().cpu()))
    return text(f"{type(value).__name__} {value!r}")


def address(value: Any) -> int | None:
    """Return where an array's memory begins; None for what has none."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return int(value.__array_interface__["data"][0]) if value.nbytes else None
    if is_array(value):
        return value.untyped_storage().data_ptr() or None if hasattr(value, "untyped_storage") else None
    return None
