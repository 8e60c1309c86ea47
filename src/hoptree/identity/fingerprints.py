"""Fingerprints of users' functions and values: a hash of what they do, not of how they are written.

A function counts by its instructions, constants, defaults, captured values and the globals it reads, followed
through the user's own functions and classes; libraries count by name and version. Comments, layout,
docstrings, names of local variables, the file and the place in it do not count.
"""

from __future__ import annotations

import enum
import functools
import logging
import sys
import types
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, final

from hoptree.identity.code_parts import Attribute, CodePart, Constant, Global, Import, code_parts
from hoptree.identity.errors import IdentityError
from hoptree.identity.libraries import is_library, module_code, release, release_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a class holds besides what it does.
_IGNORED = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__"}
_IGNORED |= {"__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__parameters__"}
_IGNORED |= {"__annotate__", "__annotate_func__", "__annotations_cache__"}


def fingerprint(value: object) -> str:
    """Return 128 bits in hex; raise ``IdentityError`` naming what cannot be told apart by value.

    >>> rate = 0.1
    >>> fingerprint(lambda x: x * rate) == fingerprint(lambda x: (x * rate))  # a note
    True
    >>> fingerprint(lambda x: x + rate) == fingerprint(lambda x: x * rate)
    False
    """
    return _Walk().digest(value).hex()


def code_alone(value: object) -> tuple[str, list[str]]:
    """Return a fingerprint that is the same with any versions of libraries, and these libraries with theirs.

    >>> import json
    >>> code_alone(lambda text: json.loads(text))[1] == ["python-" + ".".join(map(str, sys.version_info[:2]))]
    True
    """
    walk = _Walk(versions=False)
    return walk.digest(value).hex(), sorted(walk.releases)


def covered(value: object) -> dict[str, str]:
    """Return, for each of the user's modules that a value reaches, a digest of what it reaches there.

    Two processes that disagree about a fingerprint compare these to name the module that differs.
    """
    walk = _Walk()
    walk.digest(value)
    return {name: _hash(*sorted(parts)).hex() for name, parts in sorted(walk.reached.items())}


@final
class _Walk:
    """One walk over everything a value reaches; an object within itself counts by how far up it is."""

    def __init__(self, versions: bool = True) -> None:
        self._versions = versions
        self.releases: set[str] = set()  # of the libraries that were met
        self.reached: dict[str, set[bytes]] = {}  # by module of the user's
        self._depth: dict[int, int] = {}  # objects being walked
        self._known: dict[int, tuple[object, bytes]] = {}  # kept alive, so that no other gets the same id
        self._path: list[str] = []
        self._upmost = 0  # the outermost object that the last digest referred back to

    def digest(self, value: object) -> bytes:
        """Return the hash of a value, which for equal content is the same in every process."""
        leaf = _leaf(value)
        if leaf is not None:
            return _hash(leaf)
        identity = id(value)
        if identity in self._known:
            return self._known[identity][1]
        depth = len(self._depth)
        if identity in self._depth:
            self._upmost = min(self._upmost, self._depth[identity])
            return _hash(f"above:{depth - self._depth[identity]}")
        outer, self._upmost = self._upmost, depth
        self._depth[identity] = depth
        try:
            kind, parts = self._parts(value)
            result = _hash(kind, *(self._part(part) for part in parts))
            if kind in ("function", "class", "module"):
                self._note(value, result)
        finally:
            del self._depth[identity]
        if self._upmost >= depth:  # complete in itself: the same wherever it is met
            self._known[identity] = (value, result)
        self._upmost = min(outer, self._upmost)
        return result

    def _note(self, value: Any, result: bytes) -> None:
        module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
        if module and not is_library(module, None):
            self.reached.setdefault(module, set()).add(result)

    def _release(self, module: str) -> str:
        return self._noted(release(module))

    def _noted(self, released: str) -> str:
        self.releases.add(released)
        return released if self._versions else released.rpartition("-")[0]

    def _part(self, part: object) -> bytes:
        if isinstance(part, _Named):
            with self._at(part.where):
                return _hash(part.name, self.digest(part.value))
        return part if isinstance(part, bytes) else self.digest(part)

    @contextmanager
    def _at(self, where: str) -> Iterator[None]:
        self._path.append(where)
        yield
        self._path.pop()

    def _parts(self, value: Any) -> tuple[str, Iterable[object]]:
        match value:
            case list() | tuple() if type(value) in (list, tuple):
                return type(value).__name__, value
            case set() | frozenset() if type(value) in (set, frozenset):
                return "set", sorted(self.digest(item) for item in value)
            case dict() | types.MappingProxyType() if type(value) in (dict, types.MappingProxyType):
                return "dict", [part for key, item in value.items() for part in (key, _Named("", item, f"{key!r}"))]
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return "method", (value.__func__, value.__self__)
            case types.BuiltinFunctionType() | types.WrapperDescriptorType() | types.MethodDescriptorType():
                return self._builtin(value)
            case types.ModuleType():
                return self._module(value)
            case types.CodeType():
                return "code", self._code(value, {})
            case functools.partial():
                return "partial", (value.func, value.args, dict(value.keywords))
            case staticmethod() | classmethod():
                return type(value).__name__, (value.__func__,)
            case property():
                return "property", (value.fget, value.fset, value.fdel)
            case functools.cached_property():
                return "cached_property", (value.func,)
            case enum.Enum():
                return "enum", (type(value), value.name)
            case type():
                return self._class(value)
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            return "slot", (value.__name__,)
        return self._instance(value)

    def _function(self, function: types.FunctionType) -> tuple[str, Iterable[object]]:
        module = function.__module__
        # A lambda, or a function within a function, has no name of its own to go by.
        if "<" not in function.__qualname__ and is_library(module, function.__code__.co_filename):
            captured = _captured(function, function.__qualname__)
            if is_library(module, None):
                return "library", (self._release(module), function.__qualname__, *captured)
            wrapper = function.__code__  # a library's wrapper around the user's function, under that one's name
            return "wrapper", (self._noted(release_of_file(wrapper.co_filename)), wrapper.co_qualname, *captured)
        name = function.__name__
        extra = {key: item for key, item in vars(function).items() if key != "__wrapped__"}
        with self._at(f"function {name!r}"):
            code = list(map(self._part, self._code(function.__code__, function.__globals__)))
        return "function", (
            *code,
            _Named("defaults", function.__defaults__, f"the defaults of {name!r}"),
            _Named("defaults", function.__kwdefaults__, f"the defaults of {name!r}"),
            *_captured(function, name),
            extra,
        )

    def _code(self, code: types.CodeType, scope: Mapping[str, Any]) -> Iterable[object]:
        for part in code_parts(code):
            yield from self._code_part(part, scope)

    def _code_part(self, part: CodePart, scope: Mapping[str, Any]) -> Iterable[object]:
        match part:
            case Constant(types.CodeType() as nested):
                yield from ("nested", *self._code(nested, scope), "end")
            case Constant(value):
                yield value
            case Global(name, attributes):
                yield from (name, *attributes)
                if name in scope and name != "__name__":  # __main__, or what the file is imported as
                    yield self._global(name, scope[name], attributes)
            case Import(name, level):
                code = module_code(name, level, scope.get("__package__") or "")
                yield (name, self._release(name)) if code is None else code
            case Attribute(text):
                yield text

    def _global(self, name: str, value: object, attributes: tuple[str, ...]) -> _Named:
        path = name
        for attribute in attributes:  # of a user's module only what is used counts
            if not isinstance(value, types.ModuleType) or is_library(value.__name__, _file(value)):
                break
            if not hasattr(value, attribute):
                break
            value, path = getattr(value, attribute), f"{path}.{attribute}"
        return _Named("", value, f"the variable {path!r}")

    def _module(self, module: types.ModuleType) -> tuple[str, Iterable[object]]:
        if is_library(module.__name__, _file(module)):
            return "module", (module.__name__, self._release(module.__name__))
        code = module_code(module.__name__, 0, "")
        if code is None:
            raise self._unknown(module)
        return "module", (code,)

    def _builtin(self, value: Any) -> tuple[str, Iterable[object]]:
        owner = getattr(value, "__self__", None) or getattr(value, "__objclass__", None)
        module = getattr(value, "__module__", None)
        if module is None and owner is not None:
            module = owner.__module__ if isinstance(owner, type) else type(owner).__module__
        bound = () if owner is None or isinstance(owner, type | types.ModuleType) else (owner,)
        return "library", (self._release(module or "builtins"), value.__qualname__, *bound)

    def _class(self, kind: type) -> tuple[str, Iterable[object]]:
        if is_library(kind.__module__, None):
            return "library", (self._release(kind.__module__), kind.__module__, kind.__qualname__)
        members = [
            _Named(name, item, f"{kind.__name__}.{name}")
            for name, item in sorted(vars(kind).items())
            if name not in _IGNORED
        ]
        return "class", (kind.__bases__, *members)

    def _instance(self, value: Any) -> tuple[str, Iterable[object]]:
        kind = type(value)
        with self._at(f"{kind.__name__}"):
            if (content := _array(value)) is not None:
                return "array", content
            if kind.__module__ in ("numpy", "torch") and kind.__name__ in ("ufunc", "dtype", "device", "Size"):
                return "named", (kind.__name__, getattr(value, "__name__", None) or str(value))
        if isinstance(value, logging.Logger):  # named after the module; no part of what is computed
            return "logger", ()
        if (own := getattr(kind, "__fingerprint__", None)) is not None:  # it says itself what of it counts
            return "own", (kind.__module__, kind.__qualname__, own(value))
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and isinstance(wrapped, types.FunctionType):
            return "wrapped", (kind, wrapped)
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            raise self._unknown(value) from None
        if isinstance(reduced, str):
            if not is_library(getattr(value, "__module__", None) or kind.__module__, None):
                raise self._unknown(value)
            return "library", (self._release(kind.__module__), kind.__module__, reduced)
        make, arguments, state, *items = (*reduced, None, None, None)[:5]
        listed = [None if part is None else list(part) for part in items]
        return "instance", (kind, make, arguments, _Named("", _ordered(state), kind.__name__), *listed)

    def _unknown(self, value: object) -> IdentityError:
        place = " of ".join(reversed([where for where in self._path if where])) or "the value"
        return IdentityError(
            f"{place}: a {type(value).__module__}.{type(value).__qualname__}, which has no value that could be "
            "compared from run to run; make it inside the function that uses it, or pass what it is made from"
        )


@final
class _Named:
    """A part of a value, and how to call it in a message."""

    __slots__ = ("name", "value", "where")

    def __init__(self, name: str, value: object, where: str) -> None:
        self.name, self.value, self.where = name, value, where


def _captured(function: types.FunctionType, name: str) -> Iterable[_Named]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            value = None
        yield _Named("", value, f"the captured variable {variable!r} of {name!r}")


def _leaf(value: object) -> str | bytes | None:
    match value:
        case None | bool() | types.EllipsisType() | types.NotImplementedType():
            return f"single:{value!r}"
        case int() | float() | complex() if type(value) in (int, float, complex):
            return f"{type(value).__name__}:{value!r}"
        case str() if type(value) is str:
            return f"str:{value}"
        case bytes():
            return b"bytes:" + value
        case slice() | range():
            return f"{type(value).__name__}:{value!r}"
    return None


def _array(value: Any) -> tuple[object, ...] | None:
    """Return the type, shape and bytes of a numpy array, a numpy number or a torch tensor."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    if root == "torch" and callable(getattr(value, "detach", None)) and hasattr(value, "untyped_storage"):
        flat = value.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(sys.modules["torch"].uint8).numpy().tobytes() if flat.numel() else b""
        return kind.__name__, str(value.dtype), tuple(value.shape), bool(value.requires_grad), _hash(raw)
    if root == "numpy" and hasattr(value, "__array_interface__") and not value.dtype.hasobject:
        return "numpy", value.dtype.str, tuple(value.shape), _hash(value.tobytes())
    return None


def _ordered(state: Any) -> Any:
    """Return an object's attributes in name order: how they came to be set makes no difference."""
    if type(state) is dict and all(isinstance(key, str) for key in state):
        return dict(sorted(state.items()))
    return state


def _file(module: types.ModuleType) -> str | None:
    return getattr(module, "__file__", None)


def _hash(*parts: str | bytes) -> bytes:
    total = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.digest()
