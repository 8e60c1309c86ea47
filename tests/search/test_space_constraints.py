"""Constraints: no sampler returns a rejected config, and conditions that cannot work raise an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hoptree as ht
from hoptree.core.schedules import Config
from hoptree.search.space import SpaceError, grid
from tests.search.spaces import SAMPLERS, asked

SIZES = {"width": ht.integer(1, 12), "depth": ht.integer(1, 12)}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 144), st.sampled_from([*SAMPLERS, "grid"]), st.integers(0, 5))
def test_samplers_give_all_that_is_accepted_and_nothing_else(limit: int, sampler: str, seed: int):
    space = ht.where(SIZES, lambda c: c["width"] * c["depth"] <= limit)
    found = asked(sampler, space, 145, seed)
    expected = {(w, d) for w in range(1, 13) for d in range(1, 13) if w * d <= limit}
    assert {(c["width"], c["depth"]) for c in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_conditions_hold_in_endless_spaces(sampler: str):
    space = ht.where({"a": ht.uniform(0, 1), "b": ht.uniform(0, 1)}, lambda c: c["a"] + c["b"] < 0.2)
    found = asked(sampler, space, 40)
    assert len(found) == 40
    assert all(c["a"] + c["b"] < 0.2 for c in found)


def test_conditions_add_up_and_parts_have_their_own():
    def narrow(part: Config) -> bool:
        assert set(part) == {"width", "depth"}
        return part["width"] < 3

    part = ht.where(ht.where(SIZES, narrow), lambda part: part["depth"] < 3)
    space = {"net": ht.choice("linear", part), "lr": 0.1}
    found = list(grid(ht.where(space, lambda c: c.get("net.width") != 1)))
    assert found == [
        {"net": "linear", "lr": 0.1},
        {"net.width": 2, "net.depth": 1, "lr": 0.1},
        {"net.width": 2, "net.depth": 2, "lr": 0.1},
    ]


def test_a_condition_may_return_a_numpy_boolean():
    assert len(list(grid(ht.where(SIZES, lambda c: np.prod([c["width"], c["depth"]]) == 1)))) == 1


@pytest.mark.parametrize(
    ("space", "tried"),
    [(SIZES, "all 144 configs"), ({"width": ht.uniform(0, 1)}, "all 10,000 configs")],
)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_condition_that_rejects_everything_raises_before_anything_runs(sampler: str, space: Any, tried: str):
    def never(config: Config) -> bool:
        return False

    with pytest.raises(SpaceError) as caught:
        asked(sampler, ht.where(space, never), 1)
    message = str(caught.value)
    assert message.startswith(f"space: it rejects {tried} that were tried, the last because space: the condition")
    assert "never of line" in message
    assert "is False for {'width':" in message


def test_a_grid_that_rejects_everything_raises():
    with pytest.raises(SpaceError, match="rejects all 144 configs that were tried"):
        asked("grid", ht.where(SIZES, lambda c: False), 1)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda c: None, "returned None for {'width': 1, 'depth': 1}; expected True or False"),
        (lambda c: c["widht"] < 3, "raised KeyError: 'widht' for {'width': 1, 'depth': 1}; expected True or False"),
        ("width < 3", "space: the condition 'width < 3'; expected a function of a config"),
    ],
)
def test_conditions_that_do_not_return_a_boolean_are_refused(condition: Any, message: str):
    with pytest.raises(SpaceError) as caught:
        asked("random", ht.where(SIZES, condition), 1)
    assert message in str(caught.value)


def test_a_condition_cannot_change_the_config():
    def meddle(config: Config) -> bool:
        config["width"] = 99
        return True

    assert all(c["width"] != 99 for c in grid(ht.where(SIZES, meddle)))


def test_conditions_need_a_space():
    with pytest.raises(SpaceError, match="where: 5; expected a dictionary and then conditions"):
        ht.where(5, lambda c: True)
