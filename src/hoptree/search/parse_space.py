"""Parse a space: turn the user's dictionary into the tree of its parameters, or raise an error with the path.

A *path* is the position of a node: ``optimizer[0].momentum`` is the momentum in the first option of the choice
``optimizer``, ``lr.at[1]`` the second milestone of the schedule ``lr``. It also names the random stream of a
parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

from hoptree.core.errors import ScheduleError
from hoptree.core.plain_values import plain
from hoptree.core.schedules import as_schedule
from hoptree.search.constraints import Constrained
from hoptree.search.errors import SpaceError
from hoptree.search.parsed_parameters import Continuous, Range, Stepped, Whole
from hoptree.search.tree import ChoiceNode, Given, Node, ScheduleNode, Several, SpacePart, nodes
from hoptree.search.value_kinds import Choice, Integer, Searched, Uniform, text

Space: TypeAlias = Mapping[str, Any]

_LARGEST = 1e300  # the largest number that a schedule accepts
_FINEST = 2**53


def read(space: Space) -> SpacePart:
    """Return the tree of a space; raise SpaceError, starting with the path, if it cannot be searched."""
    if not isinstance(space, Mapping):
        raise SpaceError(f"space: {space!r}; expected a dictionary, for example {{'lr': choice(0.1, 0.01)}}")
    if not space:
        raise SpaceError("space: it is empty; expected at least one name, for example {'lr': choice(0.1, 0.01)}")
    root = _part("", space)
    for path, count in Counter(node.path for node in nodes(root)).items():
        if count > 1:
            raise SpaceError(f"{path}: {count} parameters would have this name; rename one of them")
    if _may_be_empty(root):
        raise SpaceError(
            "space: it could produce a config without any name; expected at least one name that is always there"
        )
    return root


def _part(path: str, space: Space) -> SpacePart:
    entries = []
    used: set[str] = set()
    for name, value in space.items():
        if not isinstance(name, str) or not name:
            raise SpaceError(f"{path or 'space'}: the name {name!r}; expected a non-empty string")
        entry = _read(f"{path}.{name}" if path else name, value)
        names = _names(name, entry)
        if used & names:
            repeated = min(used & names)
            raise SpaceError(f"{path or 'space'}: the name {repeated!r} would appear twice; rename one of them")
        used |= names
        entries.append((name, entry))
    conditions = space.conditions if isinstance(space, Constrained) else ()
    for condition in conditions:
        if not callable(condition):
            raise SpaceError(f"{path or 'space'}: the condition {condition!r}; expected a function of a config")
    return SpacePart(path, tuple(entries), conditions)


def _read(path: str, value: Any, argument: bool = False) -> Node:
    """Return the node of a value; lists are valid only as arguments of schedules, dictionaries only elsewhere."""
    value = plain(value)
    match value:
        case Uniform():
            return _uniform(path, value)
        case Integer():
            return _integer(path, value)
        case Choice(options):
            if not options:
                raise SpaceError(f"{path}: choice() without options; expected at least one, as in choice(32, 128)")
            return ChoiceNode(
                path, tuple(_read(f"{path}[{i}]", option, argument) for i, option in enumerate(options))
            )
        case Searched(kind, arguments):
            return ScheduleNode(
                path, kind, tuple((name, _read(f"{path}.{name}", part, True)) for name, part in arguments)
            )
        case Mapping() if not argument:
            return _part(path, value)
        case list() | tuple() if argument:
            return Several(path, tuple(_read(f"{path}[{i}]", item, True) for i, item in enumerate(value)))
    try:
        as_schedule(value)
    except ScheduleError as error:
        raise SpaceError(f"{path}: {error}{_hint(path, value)}") from None
    return Given(path, value)


def _hint(path: str, value: Any) -> str:
    """Return how to fix a value that is neither a constant nor a schedule: most often several values are meant."""
    if isinstance(value, bool | int | float | str):
        return ""
    if path.endswith("]") and isinstance(value, list | tuple | range):  # as in Ray Tune's choice([1, 2])
        options = f"*{value}" if isinstance(value, range) else text(value)[1:-1]
        return f"; use choice(...) with its options one by one: choice({options})"
    return "; use choice(...) for several values"


def _uniform(path: str, value: Uniform) -> Range:
    low, high = _number(path, value, value.low), _number(path, value, value.high)
    if value.log and low <= 0:
        raise SpaceError(
            f"{path}: log range starts at {low!r}; a log range needs a positive start, for example log(1e-6, 1e-1)"
        )
    _ordered(path, value, low, high)
    if value.step is None:
        return Continuous(path, low, high, value.log)
    step = _number(path, value, value.step)
    _stepped(path, value, high - low, step)
    return Stepped(path, low, high, step, value.log)


def _integer(path: str, value: Integer) -> Range:
    low, high, step = (_whole(path, value, number) for number in (value.low, value.high, value.step))
    if not isinstance(value.log, bool):
        raise SpaceError(f"{path}: {value}: log is {value.log!r}; expected True or False")
    if value.log and low <= 0:
        raise SpaceError(
            f"{path}: log range starts at {low}; expected 1 or more, for example integer(1, 64, log=True)"
        )
    _ordered(path, value, low, high)
    _stepped(path, value, high - low, step)
    return Whole(path, low, high, step, value.log)


def _ordered(path: str, value: Uniform | Integer, low: float, high: float) -> None:
    if low > high:
        raise SpaceError(f"{path}: {value} starts above its end; expected the lower bound first")


def _stepped(path: str, value: Uniform | Integer, span: float, step: float) -> None:
    if step <= 0:
        raise SpaceError(f"{path}: {value}: the step is {step!r}; expected a step above 0")
    if step > span > 0:
        raise SpaceError(f"{path}: {value}: the step is larger than the range of {span!r}; expected a smaller one")
    if span / step > _FINEST:
        raise SpaceError(f"{path}: {value}: the step is too small for floating point; expected a larger step")


def _number(path: str, value: Uniform, number: Any) -> float:
    number = plain(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= _LARGEST:
        raise SpaceError(f"{path}: {value} contains {number!r}; expected finite numbers")
    return float(number) + 0.0  # turns -0.0 into 0.0


def _whole(path: str, value: Integer, number: Any) -> int:
    number = plain(number)
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _FINEST:
        raise SpaceError(f"{path}: {value} contains {number!r}; expected whole numbers, such as integer(1, 8)")
    return number


def _names(name: str, node: Node) -> set[str]:
    """Return the names that a node may add to a config."""
    match node:
        case ChoiceNode(_, options):
            return {found for option in options for found in _names(name, option)}
        case SpacePart(_, entries):
            return {f"{name}.{inner}" for entry, below in entries for inner in _names(entry, below)}
        case _:
            return {name}


def _may_be_empty(node: Node) -> bool:
    match node:
        case ChoiceNode(_, options):
            return any(map(_may_be_empty, options))
        case SpacePart(_, entries):
            return all(_may_be_empty(entry) for _, entry in entries)
        case _:
            return False
