"""Constraints: functions that refuse a config."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, TypeAlias, final

from hoptree.core.keys import Encodable, encode, identity
from hoptree.core.plain_values import plain
from hoptree.core.schedules import Config
from hoptree.search.errors import ConfigRefusedError, SpaceError

Condition: TypeAlias = Callable[[dict[str, Any]], bool]


@final
class Constrained(Mapping[str, Any]):
    """A space, or a part of one, with conditions; made by ``where``."""

    def __init__(self, space: Mapping[str, Any], conditions: tuple[Condition, ...]) -> None:
        self._space = dict(space)
        self.conditions = conditions

    def __getitem__(self, name: str) -> Any:
        return self._space[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._space)

    def __len__(self) -> int:
        return len(self._space)

    def __repr__(self) -> str:
        return f"where({self._space!r}, {', '.join(map(title, self.conditions))})"


def where(space: Mapping[str, Any], *conditions: Condition) -> Constrained:
    """Return the space without the configs for which a condition is False.

    A condition is a function of the config as the trainer sees it: flat, with ``optimizer.name`` for a name in a
    part. A part that is an option of a choice can have conditions of its own, which see the part's names only.

    >>> space = where({"width": 8, "depth": 4}, lambda config: config["width"] * config["depth"] < 512)
    >>> dict(space)
    {'width': 8, 'depth': 4}
    """
    if not isinstance(space, Mapping):
        raise SpaceError(
            f"where: {space!r}; expected a dictionary and then conditions, as in where({{...}}, small)"
        )
    before = space.conditions if isinstance(space, Constrained) else ()
    return Constrained(space, (*before, *conditions))


def check(path: str, conditions: tuple[Condition, ...], config: Config) -> None:
    """Raise ConfigRefusedError if a condition refuses the config, SpaceError if it cannot tell."""
    for condition in conditions:
        named = f"{path or 'space'}: the condition {title(condition)}"
        try:
            verdict = plain(condition(dict(config)))
        except Exception as error:
            raise SpaceError(
                f"{named} raised {type(error).__name__}: {error} for {config}; expected True or False; the names "
                "of a part are there only when it is chosen, use config.get(name)"
            ) from error
        if not isinstance(verdict, bool):
            raise SpaceError(f"{named} returned {verdict!r} for {config}; expected True or False")
        if not verdict:
            raise ConfigRefusedError(f"{named} is False for {config}")


def name_of(condition: Condition) -> str:
    """Return what a condition is called in the code."""
    name: str = getattr(condition, "__qualname__", type(condition).__qualname__)
    return name


def title(condition: Condition) -> str:
    """Return what to call a condition in a message: its name and, as most lambdas are called the same, its line."""
    code = getattr(condition, "__code__", None)
    return name_of(condition) if code is None else f"{name_of(condition)} of line {code.co_firstlineno}"


def fingerprint(condition: Condition) -> str:
    """Return a hash of what a condition does, with the Python version that it is good for.

    It covers instructions, constants, names, defaults and captured values, not the functions that are called.
    What is no Python function has none: a change to it goes unnoticed.
    """
    code = getattr(condition, "__code__", None)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if code is None:
        return f"{version}:"
    defaults = getattr(condition, "__defaults__", None) or ()
    cells = getattr(condition, "__closure__", None) or ()
    return f"{version}:{identity('condition', _code(code), _each(defaults), [*map(_captured, cells)])}"


def _code(code: CodeType) -> Encodable:
    return code.co_code, code.co_names, _each(code.co_consts)


def _each(values: Iterable[object]) -> list[Encodable]:
    return [*map(_lasting, values)]


def _captured(cell: Any) -> Encodable:
    try:
        return _lasting(cell.cell_contents)
    except ValueError:  # not bound yet
        return ("empty",)


def _lasting(value: object) -> Encodable:
    """Return what of a value is the same in every process, behind what it is: of an object only the type."""
    value = plain(value)
    match value:
        case float() if value != value:
            return ("NaN",)
        case str():
            return "text", value.encode("utf-8", "surrogatepass")
        case None | bool() | int() | float() | bytes():
            return "value", value
        case list() | tuple():
            return "list", _each(value)
        case set() | frozenset():
            return "set", sorted(map(encode, _each(value)))
        case CodeType():
            return "code", _code(value)
        case _:
            return "object", type(value).__qualname__
