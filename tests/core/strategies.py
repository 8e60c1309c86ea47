"""Random schedules and configs, made so that many of them begin alike."""

from __future__ import annotations

from hypothesis import strategies as st

from hoptree.core.schedules import (
    Config,
    Schedule,
    constant,
    cosine,
    cyclic,
    exponential,
    linear,
    multistep,
    piecewise,
    warmup,
)

NUMBERS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2, 64]) | st.floats(0.001, 100.0)
# Eighths are exact in binary: where a milestone falls in a unit of 1, 1/2, 1/4 or 1/8 epoch is not a matter of
# rounding.
LENGTHS = st.integers(1, 32).map(lambda eighths: eighths / 8) | st.integers(1, 4)
GAMMAS = st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.5])


def milestones(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(LENGTHS, min_size=count, max_size=count, unique_by=float).map(sorted)


def numeric(numbers: st.SearchStrategy[float] = NUMBERS) -> st.SearchStrategy[Schedule]:
    """Schedules of numbers, of every kind and nested."""
    simple = st.one_of(
        st.builds(constant, numbers),
        st.builds(linear, numbers, numbers, LENGTHS),
        st.builds(exponential, numbers, GAMMAS),
        st.builds(multistep, numbers, st.integers(0, 3).flatmap(milestones), GAMMAS),
        st.builds(cyclic, numbers, numbers, LENGTHS, LENGTHS),
        st.builds(cosine, numbers, numbers, period=LENGTHS, gamma=st.sampled_from([1.0, 2.0])),
    )
    return st.recursive(
        simple,
        lambda inner: (
            st.builds(warmup, numbers, LENGTHS, inner)
            | st.lists(inner, min_size=1, max_size=3).flatmap(
                lambda parts: milestones(len(parts) - 1).map(lambda at: piecewise(parts, at))
            )
        ),
        max_leaves=4,
    )


def pairs(numbers: st.SearchStrategy[float] = NUMBERS) -> st.SearchStrategy[tuple[Schedule, Schedule]]:
    """Two schedules, which often begin alike."""
    some = numeric(numbers)

    def alike(first: Schedule, other: Schedule, lengths: list[float]) -> tuple[Schedule, Schedule]:
        early, late = lengths
        return piecewise([first, other], at=[late]), piecewise([first, first, other], at=[early, late])

    return st.one_of(
        st.tuples(some, some),
        st.builds(lambda one, at, two: (one, piecewise([one, two], at=[at])), some, LENGTHS, some),
        st.builds(
            lambda init, period, one, two: (warmup(init, period, one), warmup(init, period, two)),
            numbers,
            LENGTHS,
            some,
            some,
        ),
        st.builds(alike, some, some, milestones(2)),
    )


def configs() -> st.SearchStrategy[Config]:
    """Configs over few names and few values, so that two of them often share a prefix."""
    few = numeric(st.sampled_from([0.1, 1.0]))
    return st.fixed_dictionaries(
        {"lr": few},
        optional={
            "momentum": st.sampled_from([0.9, multistep(0.9, at=[1.5], gamma=0.5)]),
            "optimizer": st.just("sgd"),
        },
    )
