"""Schedules whose arguments may be searched.

The functions have the names and signatures of those in ``core/schedules.py``, which does not know about searches.
Without a searched value they do the same. With one they record name and arguments; the schedule is built, and its
numbers are checked, for every config that is drawn:

    >>> multistep(0.1, at=[4], gamma=0.5)(5)
    0.05
    >>> from hoptree.search.value_kinds import choice, log
    >>> str(multistep(log(1e-4, 0.1), at=choice([4], [4, 8]), gamma=0.5))
    'multistep(init=log(0.0001, 0.1), at=choice([4], [4, 8]), gamma=0.5)'
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, cast

from hoptree.core import schedules
from hoptree.core.schedules import Schedule
from hoptree.search.value_kinds import Searched, is_searched

P = ParamSpec("P")

CONSTRUCTORS: dict[str, Callable[..., Schedule]] = {
    make.__name__: make
    for make in (
        schedules.constant,
        schedules.linear,
        schedules.exponential,
        schedules.multistep,
        schedules.cyclic,
        schedules.cosine,
        schedules.warmup,
        schedules.piecewise,
    )
}
"""The constructors of schedules, by name."""


def _searchable(make: Callable[P, Schedule]) -> Callable[P, Schedule]:
    """Return the constructor extended to searched values; the result is typed as the schedule it will become."""
    call = signature(make)

    @wraps(make)
    def searchable(*args: P.args, **kwargs: P.kwargs) -> Schedule:
        if not any(map(is_searched, (*args, *kwargs.values()))):
            return make(*args, **kwargs)
        given = call.bind(*args, **kwargs).arguments.items()
        return cast("Schedule", Searched(make.__name__, tuple(given)))

    searchable.__module__ = __name__  # so that pickle finds this function
    return searchable


constant = _searchable(schedules.constant)
linear = _searchable(schedules.linear)
exponential = _searchable(schedules.exponential)
multistep = _searchable(schedules.multistep)
cyclic = _searchable(schedules.cyclic)
cosine = _searchable(schedules.cosine)
warmup = _searchable(schedules.warmup)
piecewise = _searchable(schedules.piecewise)
