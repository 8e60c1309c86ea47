"""Where the names in a function lead: its module's variables, builtins, and attributes of modules."""

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
_TELLING = {"debug", "info", "warning", "error", "exception", "critical", "log", "warn"}
_HARMLESS = {"len", "str", "round", "repr", "format", "float", "int", "type", "abs", "bool"}


class LibraryMember(NamedTuple):
    """Something that a library's module holds under a name."""

    module: str
    name: str
    value: Any


class Resolved(NamedTuple):
    """What a name leads to: a value, and the attributes of it that could not be followed."""

    value: Any
    used: int
    rest: str = ""


@final
class ModuleScope:
    """The variables of a module, as a function in it sees them."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def resolve(self, name: str, attributes: tuple[str, ...]) -> Resolved:
        """Follow a name through modules, as far as they hold the attribute; a value ends the way."""
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
            return attributes[0] in _TELLING
        return value is warnings and attributes[0] == "warn"

    def is_harmless(self, name: str) -> bool:
        """Return whether the name stands for a builtin that only computes a value."""
        return name in _HARMLESS and self.resolve(name, ()).value is getattr(builtins, name)


@final
class UnknownScope:
    """The variables of a module that is not loaded: names stand for themselves."""

    def resolvable(self, name: str, attributes: tuple[str, ...]) -> int:
        """Nothing is resolved."""
        return 0

    def is_message(self, name: str, attributes: tuple[str, ...]) -> bool:
        """Return whether this is a call of print, logging or warnings by its usual name."""
        if not attributes:
            return name == "print"
        return (name in ("logging", "log", "logger") and attributes[0] in _TELLING) or (
            name == "warnings" and attributes[0] == "warn"
        )

    def is_harmless(self, name: str) -> bool:
        """Return whether this is the usual name of a builtin that only computes a value."""
        return name in _HARMLESS


def _member(module: types.ModuleType, name: str) -> Any:
    held = vars(module)
    if name in held:
        return held[name]
    if "__getattr__" in held and is_library_module(module):  # one that loads its parts when they are asked for
        with suppress(Exception):
            return getattr(module, name)
    return sys.modules.get(f"{module.__name__}.{name}", MISSING)
