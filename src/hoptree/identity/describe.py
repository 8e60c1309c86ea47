"""Describe any value by its parts, as far as they can affect the computation."""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import logging
import pathlib
import re
import sys
import types
import typing
import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

from hoptree.identity.arrays import array_parts, named_parts
from hoptree.identity.caches import fills, is_cache
from hoptree.identity.describe_code import (
    describe_code,
    describe_function,
    describe_module,
    describe_module_file,
    is_member,
)
from hoptree.identity.libraries import is_library
from hoptree.identity.modules import ModuleFile
from hoptree.identity.scopes import LibraryMember
from hoptree.identity.walk import Description, Label, ValuePart, Walk, leaf_of

# Attributes of a class that do not affect its behaviour.
_IGNORED = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__name__"}
_IGNORED |= {"__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__parameters__"}
_IGNORED |= {"__annotate__", "__annotate_func__", "__annotations_cache__", "__slotnames__", "__match_args__"}
_WRAPPER = {"__doc__", "__name__", "__qualname__", "__module__", "__annotations__", "__type_params__"}
_FIELD = ("name", "default", "default_factory", "init", "hash", "compare", "metadata", "kw_only")


def describe(walk: Walk, value: Any) -> Description:
    """Return the parts of a value."""
    match value:
        case ModuleFile():
            return describe_module_file(walk, value)
        case LibraryMember():
            return _library_member(walk, value)
        case list() | tuple() if type(value) in (list, tuple):
            return Description(type(value).__name__, [ValuePart(item) for item in value])
        case set() | frozenset() if type(value) in (set, frozenset):
            return Description("set", [ValuePart(item) for item in value], ordered=False)
        case dict() | types.MappingProxyType() if type(value) in (dict, types.MappingProxyType):
            return Description("dict", _items(value))
        case types.FunctionType():
            return describe_function(walk, value)
        case types.MethodType():
            return _bound(walk, value) or Description(
                "method", (ValuePart(value.__func__), ValuePart(value.__self__))
            )
        case types.BuiltinFunctionType() | types.WrapperDescriptorType() | types.MethodDescriptorType():
            return _builtin(walk, value)
        case types.MethodWrapperType() | types.ClassMethodDescriptorType():
            return _builtin(walk, value)
        case types.ModuleType():
            return describe_module(walk, value)
        case types.CodeType():
            return describe_code(walk, value)
        case enum.Enum():
            return Description("enum", (ValuePart(type(value)), Label(value.name), ValuePart(value.value)))
        case type():
            return _class(walk, value)
    if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
        return Description("slot", (Label(value.__name__),))
    return _wrapper(value) or _instance(walk, value)


def _items(value: Any) -> Iterator[Any]:
    for key, item in value.items():
        yield ValuePart(key)
        yield ValuePart(item, f"{key!r}" if isinstance(key, str | int) else "")


def _wrapper(value: Any) -> Description | None:
    """Describe an object that wraps a function, or whose value pickle does not show."""
    match value:
        case functools.partial() if type(value) is functools.partial:
            return Description(
                "partial", (ValuePart(value.func), ValuePart(value.args), ValuePart(dict(value.keywords)))
            )
        case functools.partialmethod():
            return Description(
                "partialmethod", (ValuePart(value.func), ValuePart(value.args), ValuePart(dict(value.keywords)))
            )
        case staticmethod() | classmethod():
            return Description(type(value).__name__, (ValuePart(value.__func__),))
        case property():
            return Description("property", (ValuePart(value.fget), ValuePart(value.fset), ValuePart(value.fdel)))
        case functools.cached_property():
            return Description("cached_property", (ValuePart(value.func),))
        case functools.singledispatchmethod():
            return Description("singledispatchmethod", (ValuePart(value.dispatcher), ValuePart(value.func)))
        case functools._lru_cache_wrapper():
            return Description(
                "lru_cache", (ValuePart(value.__wrapped__), ValuePart(dict(value.cache_parameters())))
            )
        case re.Pattern():
            return Description("pattern", (ValuePart(value.pattern), ValuePart(value.flags)))
        case typing.TypeVar():
            limits = (value.__name__, value.__bound__, value.__constraints__)
            return Description("type variable", map(ValuePart, limits))
        case weakref.ref() | weakref.WeakKeyDictionary() | weakref.WeakValueDictionary() | weakref.WeakSet():
            return Description("cache", (Label(type(value).__name__),))
        case logging.Logger() | logging.LoggerAdapter():  # named after a module; does not affect the computation
            return Description("logger", ())
        case dataclasses.Field():
            return Description("field", [ValuePart(getattr(value, name)) for name in _FIELD])
        case pathlib.PurePath():
            return Description("path", (Label(type(value).__name__), ValuePart(str(value))))
        case slice():
            return Description("slice", (ValuePart(value.start), ValuePart(value.stop), ValuePart(value.step)))
    origin = typing.get_origin(value)
    if origin is not None and not isinstance(value, type):
        arguments = [ValuePart(getattr(value, "__metadata__", ())), *map(ValuePart, typing.get_args(value))]
        return Description("generic", (ValuePart(origin), *arguments))
    return None


def _library_member(walk: Walk, member: LibraryMember) -> Description:
    """Describe a library's object by its name in the library, or by its own name if that is equivalent."""
    value = member.value
    if leaf_of(value) is not None:
        return Description("value", (ValuePart(value),))
    if _replaces_builtin(member):
        return Description("library", (ValuePart((walk.release(member.module), member.name)),))
    if isinstance(value, types.FunctionType):
        if not is_library(value.__module__, None) or is_member(value):
            return describe_function(walk, value)
    elif isinstance(value, type) or named_parts(value) is not None:
        return describe(walk, value)
    if isinstance(value, types.BuiltinFunctionType | types.MethodType) and not isinstance(
        getattr(value, "__func__", None), types.FunctionType
    ):
        return _builtin(walk, value, bound=False)
    return Description("library", (ValuePart((walk.release(member.module), member.module, member.name)),))


def _replaces_builtin(member: LibraryMember) -> bool:
    """Return whether a library has put its own function in place of a builtin, as wandb does with ``sys.exit``.

    Modules that are part of the interpreter have no Python functions of their own. Only the process that has loaded
    the library has the replacement, so the function counts by its name, as ``_builtin`` describes the original.
    """
    function = getattr(member.value, "__func__", member.value)
    return (
        member.module in sys.builtin_module_names
        and isinstance(function, types.FunctionType)
        and is_library(function.__module__, None)
    )


def _builtin(walk: Walk, value: Any, bound: bool = True) -> Description:
    owner = getattr(value, "__self__", None)
    if owner is None:
        owner = getattr(value, "__objclass__", None)
    module = getattr(value, "__module__", None)
    if module is None and owner is not None:
        module = owner.__module__ if isinstance(owner, type) else type(owner).__module__
    name = ValuePart((walk.release(module or "builtins"), value.__qualname__))
    if not bound or owner is None or isinstance(owner, type | types.ModuleType) or _bound(walk, value):
        return Description("library", (name,))
    return Description("library", (name, ValuePart(owner)))


def _bound(walk: Walk, value: Any) -> Description | None:
    """Describe a method of a library's hidden instance that is exposed as a function, such as ``random.random``."""
    owner = type(value.__self__)
    member = vars(sys.modules[owner.__module__]).get(value.__name__) if owner.__module__ in sys.modules else None
    if member is None or member != value or not is_library(owner.__module__, None):
        return None
    return Description("library", (ValuePart((walk.release(owner.__module__), value.__qualname__)),))


def _class(walk: Walk, kind: type) -> Description:
    module = kind.__module__
    if is_library(module, None):
        return Description("library", (ValuePart((walk.release(module), module, kind.__qualname__)),))
    return Description("class", _class_parts(walk, kind), module)


def _class_parts(walk: Walk, kind: type) -> Iterator[Any]:
    meta = type(kind)
    if "names" in walk.features:
        yield Label(kind.__name__)
    if "documentation" in walk.features:
        yield Label(kind.__doc__ or "")
    if "annotations" in walk.features or not is_plain(meta):
        yield ValuePart(dict(vars(kind).get("__annotations__", {})), f"the annotations of {kind.__name__}")
    if meta is not type:
        yield ValuePart(meta)
    yield from (ValuePart(base) for base in vars(kind).get("__orig_bases__", kind.__bases__))
    for name, item in sorted(vars(kind).items()):
        if name in _IGNORED or name == "__orig_bases__" or name.startswith("__pydantic_"):
            continue
        yield Label(name)
        if isinstance(item, MutableMapping) and _fills(kind, name):
            yield Label("cache")
        else:
            yield ValuePart(item, f"{kind.__name__}.{name}")


def is_plain(meta: type) -> bool:
    """Return whether a metaclass ignores annotations."""
    return meta is type or not is_library(meta.__module__, None) or meta.__module__ in ("abc", "enum", "typing")


def _fills(kind: type, name: str) -> bool:
    """Return whether an attribute is a cache that the methods of the class fill."""
    for base in kind.__mro__:
        for item in vars(base).values() if not is_library(base.__module__, None) else ():
            function = getattr(item, "__func__", getattr(item, "fget", getattr(item, "func", item)))
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType) and is_cache(name, fills(code), code.co_filename):
                return True
    return False


def _instance(walk: Walk, value: Any) -> Description:
    kind = type(value)
    if (content := array_parts(value)) is not None:
        extra = () if is_library(kind.__module__, None) else (ValuePart(kind), ValuePart(dict(vars(value))))
        return Description(
            "array", (*(each if isinstance(each, bytes) else ValuePart(each) for each in content), *extra)
        )
    if (content := named_parts(value)) is not None:
        return Description("named", map(ValuePart, content))
    if (own := getattr(kind, "__fingerprint__", None)) is not None:  # the class defines what counts
        return Description("own", (ValuePart((kind.__module__, kind.__qualname__, own(value))),))
    try:
        reduce = copyreg.dispatch_table.get(kind)
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
    except Exception:
        raise walk.incomparable(value) from None
    if isinstance(reduced, str):
        if not is_library(getattr(value, "__module__", None) or kind.__module__, None):
            raise walk.incomparable(value)
        return Description("library", (ValuePart((walk.release(kind.__module__), kind.__module__, reduced)),))
    make, arguments, state, *items = (*reduced, None, None, None)[:5]
    listed = [None if part is None else list(part) for part in items]
    return Description(
        "instance",
        (ValuePart(kind), ValuePart(make), ValuePart(arguments), *_state(value, state), *map(ValuePart, listed)),
    )


def _state(value: Any, state: Any) -> Iterator[Any]:
    """Yield an object's attributes sorted by name (the order of assignment does not count), without caches."""
    kind = type(value)
    if type(state) is not dict or not all(isinstance(key, str) for key in state):
        yield ValuePart(state, kind.__name__)
        return
    wraps = "__wrapped__" in state
    for name, item in sorted(state.items()):
        if isinstance(getattr(kind, name, None), functools.cached_property) or (wraps and name in _WRAPPER):
            continue
        yield Label(name)
        if isinstance(item, MutableMapping) and _fills(kind, name):
            yield Label("cache")
        else:
            yield ValuePart(item, f"{kind.__name__}.{name}")
