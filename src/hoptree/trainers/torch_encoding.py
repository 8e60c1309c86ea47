"""Encode any value as lists, scalars and arrays, for attributes and optimizer slots that are not tensors."""

from __future__ import annotations

import math
import random
import types
import weakref
from collections import deque
from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple, final

import numpy as np
import torch

from hoptree.trainers.base import Arrays
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.model_contents import content_repr

_CONSTANT = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.dtype,
    torch.device, torch.layout, HyperParameters, weakref.ref,
)  # fmt: skip
_MOST = 20_000  # values inside one attribute; a larger attribute is compared only by identity
MISSING = object()


class Bits(NamedTuple):
    """A tensor or array by its content."""

    kind: str  # "tensor" or "array"
    dtype: str
    content: np.ndarray[Any, Any]  # raw bytes if numpy lacks the type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and self._key() == other._key()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.kind, self.dtype, self.content.shape, self.content.tobytes()


class Opaque(NamedTuple):
    """An object that cannot be encoded: equal only to itself, and only while its repr is the same."""

    kind: str
    identity: int
    content_repr: str = ""


class TooLargeError(Exception):
    """An attribute contains too many values to be encoded."""


@final
class Encoder:
    """Turns a value into tagged lists, scalars, ``Bits`` and ``Opaque``; equal results mean equal values."""

    def __init__(self, registered: Mapping[int, str]) -> None:
        self._registered = registered  # tensors and modules that a state contains anyway, by id
        self._seen: dict[int, int] = {}
        self._count = 0

    def encode(self, value: Any) -> Any:
        """Return the content of a value."""
        self._count += 1
        if self._count > _MOST:
            raise TooLargeError
        if value is None or isinstance(value, bool | str):
            return (
                value if type(value) in (bool, str, types.NoneType) else ["plain", type(value).__name__, str(value)]
            )
        if type(value) is int:
            return value if -(2**63) <= value < 2**63 else ["int", str(value)]
        if type(value) is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if type(value) is complex:
            return ["complex", repr(value)]
        if type(value) is bytes:
            return ["bytes", value.hex()]
        if id(value) in self._registered:
            return ["registered", self._registered[id(value)]]
        if id(value) in self._seen:
            return ["again", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        return opaque(value) if isinstance(value, _CONSTANT) else self._inside(value)

    def _inside(self, value: Any) -> Any:
        encode = self.encode
        if isinstance(value, torch.Tensor):
            return bits(value)
        if isinstance(value, np.ndarray):
            return Bits("array", value.dtype.str, value.copy()) if value.dtype.kind in "biufcSU" else opaque(value)
        if isinstance(value, np.generic):
            return Bits("scalar", value.dtype.str, np.asarray(value).copy())
        if isinstance(value, torch.Generator):
            return ["torch generator", bits(value.get_state())]
        if isinstance(value, np.random.Generator):
            return ["numpy generator", encode(dict(value.bit_generator.state))]
        if isinstance(value, random.Random):
            return ["random", encode(value.getstate())]
        if type(value) in (list, tuple):
            return [type(value).__name__, [encode(item) for item in value]]
        if type(value) in (set, frozenset):
            separate = Encoder(self._registered)  # the items of a set have no order in which to number them
            return [type(value).__name__, sorted((separate.encode(item) for item in value), key=repr)]
        if type(value) is deque:
            return ["deque", value.maxlen, [encode(item) for item in value]]
        if isinstance(value, dict):
            return ["dict", [[encode(key), encode(item)] for key, item in value.items()]]
        inside = getattr(value, "__dict__", None)
        if isinstance(inside, dict) and not isinstance(value, types.MappingProxyType):
            return ["object", opaque(value), [[name, encode(item)] for name, item in inside.items()]]
        return opaque(value)


def bits(tensor: torch.Tensor) -> Any:
    """Return a tensor's content; a tensor that cannot be read as numbers is opaque."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return opaque(tensor)
    content = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    kind = str(content.dtype).removeprefix("torch.")
    try:
        array = content.numpy()
    except TypeError:
        array = content.view(torch.uint8 if content.itemsize == 1 or not content.ndim else torch.int16).numpy()
    return Bits("tensor", kind, array.copy())


def opaque(value: Any) -> Opaque:
    """Return an object by its identity and its repr: a counter, for example, changes its repr."""
    return Opaque(type(value).__name__, id(value), content_repr(value) or "")


@final
class Decoder:
    """Turns the result of an ``Encoder`` into new values; only objects and generators are changed in place."""

    def __init__(self, registered: Mapping[str, Any]) -> None:
        self._registered = registered
        self._seen: list[Any] = []

    def decode(self, tree: Any, present: Any = MISSING) -> Any:
        """Return the value; ``present`` is the current one."""
        if isinstance(tree, Bits):
            value = _tensor(tree)
            self._seen.append(value)
            return value
        if isinstance(tree, Opaque):
            self._seen.append(present)
            return present
        if not isinstance(tree, list):
            return tree
        tag, *rest = tree
        match tag:
            case "int":
                return int(rest[0])
            case "float":
                return float(rest[0])
            case "complex":
                return complex(rest[0])
            case "bytes":
                return bytes.fromhex(rest[0])
            case "plain":
                return present if present is not MISSING else rest[1]
            case "registered":
                return self._registered[rest[0]]
            case "again":
                return self._seen[rest[0]]
        return self._container(tag, rest, present)

    def _container(self, tag: str, rest: list[Any], present: Any) -> Any:
        index = len(self._seen)
        self._seen.append(None)
        value = self._filled(tag, rest, present, index)
        self._seen[index] = value
        return value

    def _filled(self, tag: str, rest: list[Any], present: Any, index: int) -> Any:
        match tag:
            case "list" | "deque":
                target: Any = [] if tag == "list" else deque(maxlen=rest[0])
                before = list(present) if type(present) is type(target) else []
                self._seen[index] = target
                target.extend(self.decode(item, _at(before, n)) for n, item in enumerate(rest[-1]))
                return target
            case "tuple":
                known_items = present if isinstance(present, tuple) else ()
                return tuple(self.decode(item, _at(known_items, n)) for n, item in enumerate(rest[0]))
            case "set" | "frozenset":
                items = [Decoder(self._registered).decode(item) for item in rest[0]]
                return set(items) if tag == "set" else frozenset(items)
            case "dict":
                known = present if isinstance(present, dict) else {}
                target = copy(known)  # keep the class, such as defaultdict
                target.clear()
                self._seen[index] = target
                for key, item in rest[0]:
                    name = self.decode(key)
                    target[name] = self.decode(item, known.get(name, MISSING))
                return target
            case "torch generator":
                generator = present if isinstance(present, torch.Generator) else torch.Generator()
                generator.set_state(_tensor(rest[0]))
                return generator
            case "numpy generator":
                numbers = present if isinstance(present, np.random.Generator) else np.random.default_rng()
                numbers.bit_generator.state = self.decode(rest[0])
                return numbers
            case "random":
                own = present if isinstance(present, random.Random) else random.Random()
                own.setstate(self.decode(rest[0]))
                return own
            case "object":
                self._seen[index] = present
                inside = vars(present)
                items = [(name, self.decode(item, inside.get(name, MISSING))) for name, item in rest[1]]
                inside.clear()
                inside.update(items)
                return present
        raise AssertionError(f"unknown tag {tag!r}")


def _tensor(tree: Bits) -> Any:
    if tree.kind in ("array", "scalar"):
        array = tree.content.astype(np.dtype(tree.dtype), copy=True)
        return array if tree.kind == "array" else array[()]
    dtype: torch.dtype = getattr(torch, tree.dtype)
    tensor = torch.from_numpy(tree.content.copy())
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def _at(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else MISSING


def pack(name: str, content: Any, arrays: Arrays) -> Any:
    """Return content as JSON; its tensors become arrays whose names start with the given one."""
    if isinstance(content, Bits):
        array_name = f"{name}#{sum(other.startswith(f'{name}#') for other in arrays)}"
        arrays[array_name] = content.content
        return ["bits", content.kind, content.dtype, array_name]
    if isinstance(content, Opaque):
        return ["opaque"]
    return [pack(name, item, arrays) for item in content] if isinstance(content, list) else content


def unpack(content: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """Return the content that was packed."""
    if not isinstance(content, list):
        return content
    match content:
        case ["bits", kind, dtype, array_name]:
            return Bits(kind, dtype, arrays[array_name])
        case ["opaque"]:
            return Opaque("", 0)
    return [unpack(item, arrays) for item in content]
