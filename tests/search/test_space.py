"""Spaces: their configs, the names of parts, schedules with searched arguments, and errors."""

from __future__ import annotations

import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import hoptree as ht
from hoptree.core import schedules
from hoptree.core.lineage import config_items
from hoptree.core.schedules import Schedule
from hoptree.search.parse_space import read
from hoptree.search.protocol import Goal
from hoptree.search.space import SpaceError, grid
from hoptree.search.tree import size
from tests.search.spaces import FINITE_NUMBERS, SAMPLERS, asked, marks, meaning, spaces

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LOSS = Goal("loss", maximize=False)


# --- what is in a space -----------------------------------------------------------------------------------


@quick
@given(spaces(FINITE_NUMBERS))
def test_a_grid_is_every_combination_once_and_in_order(space: dict[str, Any]):
    total = size(read(space))
    assert total is not None
    assume(total <= 2000)
    assert marks(list(grid(space))) == list(dict.fromkeys(marks(meaning(space))))


@quick
@given(spaces(FINITE_NUMBERS))
@pytest.mark.slow
def test_samplers_give_a_space_that_has_an_end_once_and_completely(space: dict[str, Any]):
    total = size(read(space))
    assert total is not None
    assume(total <= 300)
    expected = sorted(set(marks(meaning(space))))
    for sampler in SAMPLERS:
        assert sorted(marks(asked(sampler, space, total + 1))) == expected


@quick
@given(spaces())
def test_every_config_can_be_trained(space: dict[str, Any]):
    for config in asked("random", space, 5):
        assert dict(config_items(config)) == config


def test_parts_add_their_names_after_a_dot():
    space = {
        "optimizer": ht.choice(
            {"name": "sgd", "momentum": ht.choice(0.0, {"kind": "nesterov", "value": ht.integer(1, 2)})},
            {"name": "adam"},
            None,
        ),
        "data": {"augment": {"crop": ht.choice(2, 4)}},
    }
    assert list(grid(space))[::2] == [
        {"optimizer.name": "sgd", "optimizer.momentum": 0.0, "data.augment.crop": 2},
        {
            "optimizer.name": "sgd",
            "optimizer.momentum.kind": "nesterov",
            "optimizer.momentum.value": 1,
            "data.augment.crop": 2,
        },
        {
            "optimizer.name": "sgd",
            "optimizer.momentum.kind": "nesterov",
            "optimizer.momentum.value": 2,
            "data.augment.crop": 2,
        },
        {"optimizer.name": "adam", "data.augment.crop": 2},
        {"optimizer": None, "data.augment.crop": 2},
    ]


def test_an_empty_part_is_nothing():
    assert list(grid({"lr": 0.1, "augment": ht.choice({}, {"crop": 4})})) == [
        {"lr": 0.1},
        {"lr": 0.1, "augment.crop": 4},
    ]


def test_numbers_of_numpy_become_pythons_own():
    space = {"lr": ht.choice(np.float32(0.5), np.float64(0.25)), "width": ht.integer(np.int64(1), np.int64(2))}
    configs = list(grid(space | {"depth": np.int32(3)}))
    assert {type(value) for config in configs for value in config.values()} == {float, int}


def test_equal_options_are_one_config():
    assert list(grid({"lr": ht.choice(0.1, 0.1, ht.constant(0.1))})) == [{"lr": 0.1}]
    assert len(list(grid({"flag": ht.choice(1, 1.0, True)}))) == 3


# --- schedules with searched arguments --------------------------------------------------------------------


def test_without_searched_values_the_schedules_are_those_of_the_core():
    assert ht.multistep(0.1, at=[4], gamma=0.5) == schedules.multistep(0.1, at=[4], gamma=0.5)
    assert ht.warmup(0.0, 2, ht.cosine(0.1, period=4)) == schedules.warmup(0.0, 2, schedules.cosine(0.1, period=4))
    for kind in ("constant", "linear", "exponential", "multistep", "cyclic", "cosine", "warmup", "piecewise"):
        own, core = getattr(ht, kind), getattr(schedules, kind)
        assert inspect.signature(own) == inspect.signature(core)
        assert own.__doc__ == core.__doc__
        assert pickle.loads(pickle.dumps(own)) is own


def test_arguments_of_schedules_are_searched():
    rate = ht.warmup(
        ht.choice(0.0, 0.01), 2, ht.multistep(ht.choice(0.1, 0.2), at=ht.choice([4], [4, 8]), gamma=0.5)
    )
    rates = [config["lr"] for config in grid({"lr": rate})]
    assert len(rates) == 8
    assert rates[0] == schedules.warmup(0.0, 2, schedules.multistep(0.1, at=[4], gamma=0.5))
    assert rates[-1] == schedules.warmup(0.01, 2, schedules.multistep(0.2, at=[4, 8], gamma=0.5))


def test_the_rates_of_the_stage_tree_paper():
    """Table 6.1: MultiStep, CyclicLR, and a warmup into MultiStep, Exponential or Cosine."""
    after = ht.choice(
        ht.multistep(0.1, at=ht.choice([60, 90], [80, 110]), gamma=0.1),
        ht.exponential(0.1, ht.choice(0.95, 0.98)),
        ht.cosine(0.1, period=115),
    )
    space = {
        "lr": ht.choice(
            ht.multistep(0.1, at=ht.choice([60], [60, 90]), gamma=0.1),
            ht.cyclic(0.01, 0.1, up=20, down=20),
            ht.warmup(0.0, 5, after),
        ),
        "batch_size": ht.choice(128, ht.multistep(128, at=[ht.choice(60, 90)], gamma=2)),
        "optimizer": ht.choice("sgd", "adam"),
    }
    configs = list(grid(space))
    assert len(configs) == (2 + 1 + 5) * 3 * 2
    assert all(isinstance(config["lr"], Schedule) for config in configs)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_milestones_that_would_not_increase_are_sampled_again(sampler: str):
    space = {
        "lr": ht.multistep(0.1, at=[ht.uniform(1, 10), ht.uniform(1, 10)], gamma=0.1),
        "seed": ht.uniform(0, 1),
    }
    for config in asked(sampler, space, 50):
        rate = config["lr"]
        assert isinstance(rate, Schedule)
        first, second = rate.arguments[1]
        assert first < second


def test_a_searched_schedule_takes_the_same_arguments_only():
    with pytest.raises(TypeError, match="gama"):
        ht.multistep(ht.log(0.1, 1), at=[4], gamma=0.1, gama=0.1)


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ht.uniform(2, 1), "uniform(2, 1) starts above its end"),
        (
            ht.log(0.0, 1),
            "log range starts at 0.0; a log range needs a positive start, for example log(1e-6, 1e-1)",
        ),
        (ht.log(-1, 1), "log range starts at -1.0"),
        (ht.log(1, 0.1), "log(1, 0.1) starts above its end"),
        (ht.uniform(0, math.nan), "uniform(0, nan) contains nan; expected finite numbers"),
        (ht.uniform(-math.inf, 0), "uniform(-inf, 0) contains -inf"),
        (ht.uniform(0, 10**400), "; expected finite numbers"),
        (ht.uniform("0", 1), "uniform('0', 1) contains '0'"),
        (ht.uniform(False, 1), "contains False"),
        (ht.uniform([0], 1), "contains [0]"),
        (ht.uniform(0, 1, step=0), "the step is 0.0; expected a step above 0"),
        (ht.uniform(0, 1, step=-0.1), "the step is -0.1; expected a step above 0"),
        (ht.uniform(0, 1, step=2), "the step is larger than the range of 1.0"),
        (ht.uniform(0, 1e300, step=1e-300), "the step is too small for floating point"),
        (ht.uniform(0, 1, step=math.nan), "contains nan"),
        (ht.integer(1.5, 3), "integer(1.5, 3) contains 1.5; expected whole numbers"),
        (ht.integer(1, 2**60), "expected whole numbers"),
        (ht.integer(3, 1), "integer(3, 1) starts above its end"),
        (ht.integer(1, 3, step=0), "the step is 0; expected a step above 0"),
        (ht.integer(1, 3, step=5), "the step is larger than the range of 2"),
        (ht.integer(0, 8, log=True), "log range starts at 0; expected 1 or more"),
        (ht.integer(0, 8, step=2, log=True), "log range starts at 0; expected 1 or more"),
        (ht.log(0.0, 1.0, step=0.1), "log range starts at 0.0; a log range needs a positive start"),
        (ht.log(0.1, 1.0, step=0), "the step is 0.0; expected a step above 0"),
        (ht.log(0.1, 1.0, step=2), "the step is larger than the range"),
        (ht.integer(1, 8, log=1), "log is 1; expected True or False"),
        (ht.choice(), "choice() without options; expected at least one"),
        ([0.1, 0.2], "value: [0.1, 0.2]; expected a number, a string, a boolean or None; use choice(...)"),
        ({1, 2}, "expected a number, a string"),
        (math.nan, "value: nan; expected a finite number"),
        (np.zeros(3), "expected a number, a string"),
        ({"": 1}, "the name ''; expected a non-empty string"),
        ({3: 1}, "the name 3; expected a non-empty string"),
    ],
)
def test_values_that_cannot_be_searched_are_refused_by_name(value: Any, message: str):
    for space, path in [
        ({"width": 8, "lr": value}, "lr"),
        ({"opt": {"lr": value}}, "opt.lr"),
        ({"opt": ht.choice("sgd", {"lr": value})}, "opt[1].lr"),
        ({"lr": ht.choice(0.1, value)}, "lr[1]"),
    ]:
        for sampler in (*SAMPLERS, "grid"):
            with pytest.raises(SpaceError) as caught:
                asked(sampler, space, 1)
            assert str(caught.value).startswith(f"{path}: ")
            assert message in str(caught.value)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "space: it is empty; expected at least one name"),
        ([1], "space: [1]; expected a dictionary"),
        ({"a": {}}, "space: it could produce a config without any name"),
        ({"a": ht.choice({}, {"b": 1})}, "space: it could produce a config without any name"),
        ({"a.b": 1, "a": ht.choice({"b": 2}, 3)}, "space: the name 'a.b' would appear twice"),
        ({"p": {"a.b": 1, "a": {"b": 2}}}, "p: the name 'a.b' would appear twice"),
        ({"a": ht.choice(1, 2), "a[0]": 3}, "a[0]: 2 parameters would have this name"),
        ({"lr": ht.constant(ht.log(0, 1))}, "lr.value: log range starts at 0"),
        ({"lr": ht.multistep(0.1, at=[4, ht.integer(3, 1)], gamma=1)}, "lr.at[1]: integer(3, 1) starts above"),
        ({"lr": ht.multistep(0.1, at=ht.choice([4], {"a": 4}), gamma=1)}, "lr.at[1]: value: {'a': 4}; expected"),
        (
            {"lr": ht.multistep(ht.log(1, 2), at=[4], gamma="x")},
            "space: it rejects all 10,000 configs",
        ),
    ],
)
def test_spaces_that_contradict_themselves_are_refused(space: Any, message: str):
    with pytest.raises(SpaceError) as caught:
        asked("random", space, 1)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("given", "better"), [([8, 16], "8, 16"), (range(3), "*range(0, 3)")])
def test_a_list_of_options_gets_a_hint(given: Any, better: str):
    with pytest.raises(SpaceError) as caught:
        asked("random", {"width": ht.choice(given)}, 1)
    assert str(caught.value).startswith("width[0]: ")
    assert str(caught.value).endswith(f"; use choice(...) with its options one by one: choice({better})")


def test_the_error_for_an_impossible_schedule_gives_the_reason():
    with pytest.raises(SpaceError, match=r"the last because lr: at\[1\]: 4 comes after 5; expected increasing"):
        asked("random", {"lr": ht.multistep(ht.log(1, 2), at=[5, 4], gamma=0.5)}, 1)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (ht.uniform(0, 1), "lr"),
        (ht.log(1e-4, 1), "lr"),
        (ht.choice(0.1, ht.log(1e-4, 1)), "lr[1]"),
        (ht.multistep(ht.log(1e-4, 1), at=[4], gamma=0.1), "lr.init"),
        (ht.choice({"name": "sgd", "momentum": ht.uniform(0, 1)}, {"name": "adam"}), "lr[0].momentum"),
    ],
)
def test_a_grid_over_a_continuous_value_is_refused_by_name(value: Any, path: str):
    with pytest.raises(SpaceError) as caught:
        ht.Grid(epochs=1).search({"width": ht.choice(8, 16), "lr": value}, LOSS, 0)
    assert str(caught.value).startswith(f"{path}: a grid needs values that can be listed; use choice(...)")


def test_a_grid_too_large_to_list_is_refused_by_its_largest_parameter():
    with pytest.raises(SpaceError, match=r"^width: 1,000,000 values in a grid of 2,000,000 configs; expected"):
        ht.Grid(epochs=1).search({"lr": ht.choice(0.1, 0.2), "width": ht.integer(1, 1_000_000)}, LOSS, 0)


def test_a_range_of_one_number_is_a_constant():
    space = {"a": ht.uniform(0.5, 0.5), "b": ht.integer(3, 3), "c": ht.log(2, 2), "d": ht.uniform(1, 1, step=0.1)}
    assert list(grid(space)) == asked("random", space, 3) == [{"a": 0.5, "b": 3, "c": 2.0, "d": 1.0}]
