"""Explore: a changed config is in the space, and only the allowed names have changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Schedule
from hoptree.search.explore import Explorer
from hoptree.search.match_config import decisions_of
from hoptree.search.parse_space import read
from hoptree.search.sampling import make_sampler
from hoptree.search.schedules import multistep, piecewise, warmup
from hoptree.search.space import where
from hoptree.search.tree import build
from hoptree.search.value_kinds import choice, integer, log, uniform

SPACES: list[dict[str, Any]] = [
    {"lr": log(1e-4, 1.0), "dropout": uniform(0.0, 0.5, step=0.1), "layers": integer(1, 8), "batch_size": 64},
    {"lr": multistep(log(1e-3, 1.0), at=[integer(1, 3), 5], gamma=choice(0.1, 0.5)), "width": choice(8, 16, 32)},
    {"lr": choice(0.1, multistep(0.1, at=[2], gamma=0.1), warmup(0.0, 2, log(0.01, 0.1)))},
    {
        "optimizer": choice(
            {"name": "sgd"},
            {"name": "sgd", "momentum": uniform(0.0, 1.0)},
            {"name": "adam", "betas": {"first": uniform(0.8, 0.9), "second": 0.999}},
        ),
        "lr": piecewise([0.1, log(0.01, 0.1)], at=[3]),
    },
    {"units": integer(16, 128, step=16), "power": integer(1, 64, log=True), "flag": choice(True, False, None)},
]


def sampled(space: dict[str, Any], seed: int) -> dict[str, Any]:
    config = make_sampler("random", space, seed).ask()
    assert config is not None
    return config


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SPACES), st.integers(0, 10_000))
def test_the_decisions_of_a_config_are_found_again(space, seed):
    config = sampled(space, seed)
    decisions = decisions_of(read(space), config)
    assert decisions is not None
    assert repr(build(read(space), decisions)) == repr(config)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SPACES), st.integers(0, 10_000), st.sampled_from([0.0, 0.25, 1.0]))
def test_a_changed_config_is_one_of_the_space(space, seed, resample):
    explorer = Explorer(space, seed, resample, (0.8, 1.2), None)
    config = sampled(space, seed)
    for number in range(5):
        config = explorer.changed(config, number)
        assert decisions_of(read(space), config) is not None


def test_numbers_move_by_a_factor_within_their_range():
    explorer = Explorer({"lr": log(0.1, 1.0)}, 0, 0.0, (0.5, 2.0), None)
    moved = {explorer.changed({"lr": 0.3}, n)["lr"] for n in range(20)}
    assert moved == {0.15, 0.6}
    assert {explorer.changed({"lr": 0.7}, n)["lr"] for n in range(20)} == {0.35, 1.0}


def test_whole_numbers_and_steps_move_by_one_at_least():
    explorer = Explorer({"n": integer(1, 9), "p": uniform(0.0, 1.0, step=0.1)}, 0, 0.0, (0.8, 1.2), None)
    changed = [explorer.changed({"n": 2, "p": 0.1}, n) for n in range(30)]
    assert {config["n"] for config in changed} == {1, 3}
    assert {config["p"] for config in changed} == {0.0, 0.2}


def test_choices_move_to_a_neighbour():
    explorer = Explorer({"width": choice(8, 16, 32, 64)}, 0, 0.0, (0.8, 1.2), None)
    assert {explorer.changed({"width": 32}, n)["width"] for n in range(20)} == {16, 64}
    assert {explorer.changed({"width": 8}, n)["width"] for n in range(20)} == {16}


def test_the_arguments_of_a_schedule_move_too():
    space = {"lr": multistep(log(0.01, 1.0), at=[4], gamma=0.1)}
    explorer = Explorer(space, 0, 0.0, (0.5,), None)
    changed = explorer.changed({"lr": multistep(0.2, at=[4], gamma=0.1)}, 0)["lr"]
    assert isinstance(changed, Schedule)
    assert str(changed) == "multistep(0.1, [4], 0.1)"


def test_only_allowed_values_change():
    explorer = Explorer(SPACES[0], 0, 0.5, (0.8, 1.2), ["lr"])
    config = sampled(SPACES[0], 3)
    changed = [explorer.changed(config, n) for n in range(20)]
    assert len({c["lr"] for c in changed}) > 2
    assert all({**c, "lr": config["lr"]} == config for c in changed)


def test_a_name_within_a_part_may_change_alone():
    space = SPACES[3]
    config = {"optimizer.name": "sgd", "optimizer.momentum": 0.5, "lr": piecewise([0.1, 0.05], at=[3])}
    explorer = Explorer(space, 0, 0.0, (0.8, 1.2), ["optimizer.momentum"])
    changed = [explorer.changed(config, n) for n in range(20)]
    assert {c["optimizer.momentum"] for c in changed} == {0.4, 0.6}
    assert all(c["lr"] == config["lr"] for c in changed)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SPACES), st.integers(0, 10_000), st.booleans())
def test_one_more_parameter_changes_no_other(space, seed, first):
    more = {"extra": uniform(0.0, 1.0)}
    larger = {**more, **space} if first else {**space, **more}
    config = sampled(space, seed)
    changed = Explorer(space, seed, 0.25, (0.8, 1.2), None).changed(config, 7)
    among = Explorer(larger, seed, 0.25, (0.8, 1.2), None).changed({**config, "extra": 0.5}, 7)
    assert {name: value for name, value in among.items() if name != "extra"} == changed


def test_exploring_gives_only_configs_that_the_space_accepts():
    space = where({"a": integer(1, 9), "b": integer(1, 9)}, lambda config: config["a"] + config["b"] == 10)
    explorer = Explorer(space, 0, 1.0, (0.8, 1.2), None)
    changed = [explorer.changed({"a": 4, "b": 6}, n) for n in range(20)]
    assert all(config["a"] + config["b"] == 10 for config in changed)


def test_a_config_outside_the_space_is_refused():
    with pytest.raises(WorkloadError, match="sampler: it returned {'lr': 7.0}, which is not in the space"):
        Explorer({"lr": log(0.1, 1.0)}, 0, 0.0, (0.8,), None).changed({"lr": 7.0}, 0)
