"""Constraints: functions that reject configs."""

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

    A condition is a function of the config as the trainer sees it: flat, with the key ``optimizer.name`` for
    ``name`` in the part ``optimizer``. A part that is an option of a choice can have its own conditions on its own
    names.

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
    """Raise ConfigRefusedError if a condition rejects the config, SpaceError if a condition fails."""
    for condition in conditions:
        named = f"{path or 'space'}: the condition {title(condition)}"
        try:
            accepted = plain(condition(dict(config)))
        except Exception as error:
            raise SpaceError(
                f"{named} raised {type(error).__name__}: {error} for {config}; expected True or False; the names "
                "of a part exist only when it is chosen, use config.get(name)"
            ) from error
        if not isinstance(accepted, bool):
            raise SpaceError(f"{named} returned {accepted!r} for {config}; expected True or False")
        if not accepted:
            raise ConfigRefusedError(f"{named} is False for {config}")


def name_of(condition: Condition) -> str:
    """Return the name of a condition in the code."""
    name: str = getattr(condition, "__qualname__", type(condition).__qualname__)
    return name


def title(condition: Condition) -> str:
    """Return the label of a condition in a message: its name and its line, because lambdas share a name."""
    code = getattr(condition, "__code__", None)
    return name_of(condition) if code is None else f"{name_of(condition)} of line {code.co_firstlineno}"


def fingerprint(condition: Condition) -> str:
    """Return a hash of a condition's code, prefixed with the Python version that it is valid for.

    It covers instructions, constants, names, defaults and captured values, but not the functions that the condition
    calls. A callable without Python code has an empty hash: changes to it go undetected.
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
    return [*map(_stable, values)]


def _captured(cell: Any) -> Encodable:
    try:
        return _stable(cell.cell_contents)
    except ValueError:  # not bound yet
        return ("empty",)


def _stable(value: object) -> Encodable:
    """Return the part of a value that is the same in every process, with a tag; for an object, only its type."""
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
