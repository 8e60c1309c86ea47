"""Spaces: names to values that a search chooses from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, TypeAlias

import msgspec

from hoptree.core.errors import HoptreeError
from hoptree.core.schedules import Config, Value, as_schedule, plain


class SpaceError(HoptreeError, ValueError):
    """A space that cannot be searched; the message begins with the offending name."""


class Choice(msgspec.Struct, frozen=True):
    """One of several values."""

    options: tuple[Value, ...]


Space: TypeAlias = Mapping[str, Any]


def choice(*options: Value) -> Choice:
    """Return a value that is one of the options, constants or schedules.

    >>> choice(32, 128).options
    (32, 128)
    """
    if not options:
        raise SpaceError("choice(): no options; expected at least one, for example choice(32, 128)")
    for index, option in enumerate(options):
        _check(f"choice: option {index}", option)
    return Choice(tuple(plain(option) for option in options))


def grid(space: Space) -> Iterator[Config]:
    """Yield every combination of a space's choices, the last name changing fastest.

    >>> [c["lr"] for c in grid({"lr": choice(0.1, 0.2), "width": 8})]
    [0.1, 0.2]
    """
    if not space:
        raise SpaceError("space: it is empty; expected at least one name, for example {'lr': choice(0.1, 0.01)}")
    columns: list[list[Value]] = []
    for name, value in space.items():
        if isinstance(value, Choice):
            columns.append(list(value.options))
        else:
            _check(name, value)
            columns.append([plain(value)])
    for values in product(*columns):
        yield dict(zip(space, values, strict=True))


def _check(name: str, value: Any) -> None:
    try:
        as_schedule(value)
    except ValueError as error:
        raise SpaceError(f"{name}: {error}; use choice(...) for several values") from None
