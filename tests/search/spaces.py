"""Random spaces, and a second, simple implementation of the meaning of a space."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import strategies as st

import hoptree as ht
from hoptree.core import schedules
from hoptree.core.errors import ScheduleError
from hoptree.core.schedules import Config
from hoptree.search.sampling import make_sampler
from hoptree.search.value_kinds import Choice, Integer, Searched, Uniform

SAMPLERS = ("random", "sobol", "latin-hypercube")
NAMES = st.sampled_from(["lr", "width", "name", "depth"])
CONSTANTS = st.sampled_from([0, 1, 1.0, 0.5, True, None, "sgd", "adam", schedules.linear(1.0, 0.0, over=2)])

REFUSED = type("Refused", (), {})()

WHOLE = st.builds(lambda low, span: ht.integer(low, low + span), st.integers(-3, 3), st.integers(0, 3))
STEPPED = st.sampled_from([ht.uniform(0, 0.3, step=0.1), ht.uniform(-1, 1, step=0.75), ht.integer(0, 8, step=4)])
SPREAD = st.sampled_from(
    [
        ht.integer(1, 6, log=True),
        ht.integer(2, 12, step=4, log=True),
        ht.log(0.1, 0.35, step=0.1),
        ht.choice(0.1, 0.2),
    ]
)
FINITE_NUMBERS = WHOLE | STEPPED | SPREAD
NUMBERS = FINITE_NUMBERS | st.sampled_from([ht.uniform(-1, 1), ht.log(1e-4, 1.0), ht.uniform(0.5, 0.5)])


def values(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of every kind, nested: numbers, choices, parts, schedules with searched arguments."""
    schedule = st.one_of(
        st.builds(ht.constant, numbers),
        st.builds(ht.multistep, numbers, at=st.just(ht.choice([2], [2, 4])), gamma=st.sampled_from([0.5, 0.1])),
        st.builds(ht.multistep, numbers, at=st.just([ht.integer(1, 3), ht.integer(2, 3)]), gamma=st.just(0.5)),
        st.builds(lambda number: ht.warmup(0.0, 2, ht.multistep(number, at=[4], gamma=0.5)), numbers),
        st.builds(lambda number: ht.piecewise([number, ht.choice(0.1, ht.constant(0.2))], at=[3]), numbers),
    )
    return st.recursive(
        CONSTANTS | numbers | schedule,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3).map(lambda options: ht.choice(*options))
            | st.lists(parts(inner), min_size=1, max_size=2).map(lambda options: ht.choice(*options))
            | parts(inner)
        ),
        max_leaves=5,
    )


def parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, inner, min_size=1, max_size=2)


def spaces(numbers: st.SearchStrategy[Any] = NUMBERS) -> st.SearchStrategy[dict[str, Any]]:
    """Spaces over few names, so that parts share names."""
    return st.dictionaries(NAMES, values(numbers), min_size=1, max_size=3)


def flat_spaces() -> st.SearchStrategy[dict[str, Any]]:
    """Spaces of continuous ranges, in which no config occurs twice."""
    endless = st.sampled_from([ht.uniform(-1, 1), ht.uniform(0, 100), ht.log(1e-4, 1.0), ht.log(2, 3)])
    return st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), endless, min_size=1, max_size=4)


def meaning(space: dict[str, Any]) -> list[Config]:
    """Return every config of a finite space, with repetitions; the last name changes fastest."""
    return [config for config in _expand(space) if config is not REFUSED]


def _expand(value: Any) -> list[Any]:
    if isinstance(value, Choice):
        return [expanded for option in value.options for expanded in _expand(option)]
    if isinstance(value, Integer):
        return list(range(value.low, value.high + 1, value.step))
    if isinstance(value, Uniform):
        count = 1 if value.step is None else int((value.high - value.low) / value.step + 1e-9) + 1
        return [round(value.low + k * (value.step or 0), 6) for k in range(count)]
    if isinstance(value, Searched):
        make: Callable[..., Any] = getattr(schedules, value.kind)
        ways = product(*(_expand(argument) for _, argument in value.arguments))
        return [_attempt(make, dict(zip(dict(value.arguments), way, strict=True))) for way in ways]
    if isinstance(value, list | tuple):
        return [list(way) for way in product(*map(_expand, value))]
    if isinstance(value, dict):
        return [_merge(dict(zip(value, way, strict=True))) for way in product(*map(_expand, value.values()))]
    return [value]


def _attempt(make: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return make(**arguments)
    except ScheduleError:
        return REFUSED


def _merge(values: dict[str, Any]) -> Any:
    config: dict[str, Any] = {}
    for name, value in values.items():
        if value is REFUSED:
            return REFUSED
        if isinstance(value, dict):
            config.update({f"{name}.{inner}": part for inner, part in value.items()})
        else:
            config[name] = value
    return config


def asked(sampler: str, space: Any, count: int, seed: int = 0) -> list[Config]:
    """Return the first configs of a sampler."""
    made = make_sampler(sampler, space, seed, count)
    given = [made.ask() for _ in range(count)]
    return [config for config in given if config is not None]


def marks(configs: list[Config]) -> list[str]:
    """Return configs in a form in which equality means equal values of equal types."""
    return [repr(sorted((name, repr(schedules.as_schedule(value))) for name, value in c.items())) for c in configs]
