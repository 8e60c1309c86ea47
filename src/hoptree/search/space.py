"""Spaces: names and the values that a search chooses from. The public API of everything about spaces."""

from __future__ import annotations

from collections.abc import Iterator

from hoptree.core.schedules import Config
from hoptree.search.constraints import where
from hoptree.search.describe_space import changes, describe
from hoptree.search.errors import ConfigRefusedError, SpaceError
from hoptree.search.parse_space import Space, read
from hoptree.search.tree import SpacePart, build, identity, parameters
from hoptree.search.unique_configs import all_refused, combinations
from hoptree.search.value_kinds import choice, integer, log, uniform

__all__ = [
    "Space",
    "SpaceError",
    "changes",
    "choice",
    "describe",
    "grid",
    "integer",
    "log",
    "uniform",
    "where",
]


def grid(space: Space) -> Iterator[Config]:
    """Yield every combination of a space once; the last name changes fastest.

    Every finite set of values counts: choices, whole numbers, and numbers with a step, also inside options and
    among the arguments of a schedule. Configs that the space rejects are left out.

    >>> [c["lr"] for c in grid({"lr": choice(0.1, 0.2), "width": 8})]
    [0.1, 0.2]
    """
    return _grid(countable(space))


def countable(space: Space) -> SpacePart:
    """Return the tree of a space; raise SpaceError if it has infinitely many configs."""
    root = read(space)
    for parameter in parameters(root):
        if parameter.count is None:
            raise SpaceError(
                f"{parameter.path}: a grid needs values that can be listed; use choice(...), integer(...), "
                "uniform(low, high, step=...), or a search other than a grid"
            )
    return root


def _grid(root: SpacePart) -> Iterator[Config]:
    seen: set[object] = set()
    refusal = ""
    tried = 0
    for tried, decisions in enumerate(combinations(root), start=1):  # noqa: B007 counted for the message
        try:
            config = build(root, decisions)
        except ConfigRefusedError as error:
            refusal = str(error)
            continue
        if identity(config) not in seen:
            seen.add(identity(config))
            yield config
    if not seen:
        raise all_refused(tried, refusal)
