"""Searched values, as users write them: the values that a search may choose from.

They only record their arguments. A space is checked as a whole when a search is created from it, because only then
the name is known with which an error message starts. The functions return ``Any``, so that type checkers accept the
result wherever the chosen value could stand: in a space, in a choice, among the arguments of a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, final

import msgspec

from hoptree.core.schedules import Schedule


@final
class Uniform(msgspec.Struct, frozen=True):
    """A number between two bounds, log-uniform if ``log``, on a grid if there is a ``step``."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def __str__(self) -> str:
        step = "" if self.step is None else f", step={self.step!r}"
        return f"{'log' if self.log else 'uniform'}({self.low!r}, {self.high!r}{step})"


@final
class Integer(msgspec.Struct, frozen=True):
    """A whole number between two bounds."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __str__(self) -> str:
        step = "" if self.step == 1 else f", step={self.step!r}"
        return f"integer({self.low!r}, {self.high!r}{step}{', log=True' if self.log else ''})"


@final
class Choice(msgspec.Struct, frozen=True):
    """One of several options."""

    options: tuple[Any, ...]

    def __str__(self) -> str:
        return f"choice({', '.join(map(text, self.options))})"


@final
class Searched(msgspec.Struct, frozen=True):
    """A schedule with searched values among its arguments."""

    kind: str
    arguments: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={text(value)}' for name, value in self.arguments)})"


SearchedValue: TypeAlias = Uniform | Integer | Choice | Searched


def uniform(low: float, high: float, step: float | None = None) -> Any:
    """Return a number from ``low`` to ``high``; with a ``step``, a whole number of steps above ``low``.

    >>> str(uniform(0.0, 0.5, step=0.1))
    'uniform(0.0, 0.5, step=0.1)'
    """
    return Uniform(low, high, step)


def log(low: float, high: float, step: float | None = None) -> Any:
    """Return a number from ``low`` to ``high``, as likely between 0.001 and 0.01 as between 0.01 and 0.1.

    With a ``step``, the nearest number that is whole steps above ``low``.
    """
    return Uniform(low, high, step, log=True)


def integer(low: int, high: int, step: int = 1, log: bool = False) -> Any:
    """Return a whole number from ``low`` to ``high``, both included; with ``log``, small ones are likelier.

    With a ``step``, the number is whole steps above ``low``.
    """
    return Integer(low, high, step, log)


def choice(*options: Any) -> Any:
    """Return one of the options, all equally likely.

    An option is a constant, a schedule, a searched value, or a dictionary: a part of the config that exists only
    when it is chosen. With ``{"optimizer": choice({"name": "sgd", "momentum": uniform(0, 1)}, {"name": "adam"})}``
    a config has ``optimizer.name``, and ``optimizer.momentum`` only with the first option.

    >>> choice(32, 128).options
    (32, 128)
    """
    return Choice(options)


def is_searched(value: Any) -> bool:
    """Return whether a value, or an item of a list, is still to be chosen.

    >>> is_searched([4, integer(5, 9)]), is_searched([4, 5])
    (True, False)
    """
    if isinstance(value, list | tuple):
        return any(map(is_searched, value))
    return isinstance(value, SearchedValue)


def text(value: Any) -> str:
    """Return a value in the notation of code: text distinguishes types, and equal text means an equal value."""
    if isinstance(value, Schedule | SearchedValue):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text, value))}]"
    return repr(value)
