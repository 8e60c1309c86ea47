"""Resolve the names in a function: its module's variables, builtins, and attributes of modules."""

from __future__ import annotations

import builtins
import logging
import sys
import types
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, final

from hoptree.identity.libraries import is_library_module

MISSING: Any = object()
_MESSAGE_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log", "warn"}
_HARMLESS = {"len", "str", "round", "repr", "format", "float", "int", "type", "abs", "bool"}


class LibraryMember(NamedTuple):
    """An attribute of a library's module."""

    module: str
    name: str
    value: Any


class Resolved(NamedTuple):
    """The result of resolving a name: a value, and the attributes that could not be resolved."""

    value: Any
    used: int
    rest: str = ""


@final
class ModuleScope:
    """The variables of a module, as seen by a function in it."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def resolve(self, name: str, attributes: tuple[str, ...]) -> Resolved:
        """Resolve a name through modules; stop at the first value that is not a module."""
        value = self._variables.get(name, MISSING)
        if value is MISSING:
            value = vars(builtins).get(name, MISSING)
        for used, attribute in enumerate(attributes):
            if not isinstance(value, types.ModuleType):
                return Resolved(value, used)
            found = _member(value, attribute)
            if found is MISSING:
                getter = vars(value).get("__getattr__")
                if isinstance(getter, types.FunctionType) and not is_library_module(value):
                    return Resolved(getter, used + 1, attribute)
                return Resolved(value, used)
            if is_library_module(value) and not isinstance(found, types.ModuleType):
                return Resolved(LibraryMember(value.__name__, attribute, found), used + 1)
            value = found
        return Resolved(value, len(attributes))

    def resolvable(self, name: str, attributes: tuple[str, ...]) -> int:
        """Return how many attributes can be resolved."""
        return self.resolve(name, attributes).used

    def is_message(self, name: str, attributes: tuple[str, ...]) -> bool:
        """Return whether the name stands for print, or for a function that logs or warns."""
        value = self.resolve(name, ()).value
        if not attributes:
            return value is print or value is warnings.warn
        if value is logging or isinstance(value, logging.Logger):
            return attributes[0] in _MESSAGE_METHODS
        return value is warnings and attributes[0] == "warn"

    def is_harmless(self, name: str) -> bool:
        """Return whether the name stands for a builtin that only computes a value."""
        return name in _HARMLESS and self.resolve(name, ()).value is getattr(builtins, name)


@final
class UnknownScope:
    """The variables of a module that is not loaded: names are not resolved."""

    def resolvable(self, name: str, attributes: tuple[str, ...]) -> int:
        """Return 0: nothing is resolved."""
        return 0

    def is_message(self, name: str, attributes: tuple[str, ...]) -> bool:
        """Return whether this is the usual name of print, or of a function of logging or warnings."""
        if not attributes:
            return name == "print"
        return (name in ("logging", "log", "logger") and attributes[0] in _MESSAGE_METHODS) or (
            name == "warnings" and attributes[0] == "warn"
        )

    def is_harmless(self, name: str) -> bool:
        """Return whether this is the usual name of a builtin that only computes a value."""
        return name in _HARMLESS


def _member(module: types.ModuleType, name: str) -> Any:
    members = vars(module)
    if name in members:
        return members[name]
    if "__getattr__" in members and is_library_module(module):  # it loads its parts lazily
        with suppress(Exception):
            return getattr(module, name)
    return sys.modules.get(f"{module.__name__}.{name}", MISSING)
