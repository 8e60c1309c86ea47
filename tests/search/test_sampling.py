"""Samplers: independent streams, evenness, no config twice, the same in every process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hoptree as ht
from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config
from hoptree.search.sampling import make_sampler
from tests.search.spaces import SAMPLERS, asked, flat_spaces

quick = settings(max_examples=50, deadline=None)


# --- streams ----------------------------------------------------------------------------------------------


def without(configs: list[Config], *names: str) -> list[Config]:
    return [{name: value for name, value in config.items() if name not in names} for config in configs]


@quick
@given(flat_spaces(), st.sampled_from(["random", "latin-hypercube"]), st.integers(0, 99), st.booleans())
def test_one_more_parameter_changes_no_other(space: dict[str, Any], sampler: str, seed: int, first: bool):
    extra = {"extra": ht.choice({"momentum": ht.uniform(0, 1)}, {"decay": ht.log(1e-5, 1)})}
    larger = extra | space if first else space | extra
    assert asked(sampler, space, 6, seed) == without(
        asked(sampler, larger, 6, seed), "extra.momentum", "extra.decay"
    )


@quick
@given(flat_spaces(), st.integers(0, 99))
def test_one_more_parameter_at_the_end_changes_no_other_in_a_sobol_sequence(space: dict[str, Any], seed: int):
    larger = space | {"extra": ht.uniform(0, 1)}
    assert asked("sobol", space, 6, seed) == without(asked("sobol", larger, 6, seed), "extra")


def test_one_more_name_in_a_part_or_one_more_option_at_the_end_changes_no_other():
    before = {"opt": ht.choice({"a": ht.uniform(0, 1)}, {"b": ht.uniform(0, 1)}), "lr": ht.log(1e-3, 1)}
    after = before | {"opt": ht.choice({"a": ht.uniform(0, 1), "z": ht.uniform(0, 1)}, {"b": ht.uniform(0, 1)})}
    assert asked("random", before, 9) == without(asked("random", after, 9), "opt.z")
    more = before | {"opt": ht.choice(*before["opt"].options, "none")}
    assert without(asked("random", before, 9), "opt.a", "opt.b") == without(
        asked("random", more, 9), "opt.a", "opt.b", "opt"
    )


@quick
@given(flat_spaces(), st.integers(0, 99), st.integers(2, 9))
def test_a_config_does_not_depend_on_how_many_follow(space: dict[str, Any], seed: int, count: int):
    assert asked("random", space, count, seed) == asked("random", space, 10, seed)[:count]
    assert asked("sobol", space, count, seed) == asked("sobol", space, 10, seed)[:count]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_seeds_make_the_difference(sampler: str):
    space = {"a": ht.uniform(0, 1), "b": ht.uniform(0, 1)}
    assert asked(sampler, space, 3, 1) == asked(sampler, space, 3, 1)
    assert asked(sampler, space, 3, 1) != asked(sampler, space, 3, 2)
    assert all(config["a"] != config["b"] for config in asked(sampler, space, 3))


def test_values_are_the_same_in_every_version():
    space = {
        "lr": ht.log(1e-4, 1e-1),
        "width": ht.integer(8, 64, step=8),
        "dropout": ht.uniform(0, 0.5, step=0.05),
        "momentum": ht.uniform(0, 1),
    }
    assert asked("random", space, 2) == [
        {"lr": 0.000501580073436, "width": 8, "dropout": 0.2, "momentum": 0.065871452583802},
        {"lr": 0.014067188919, "width": 8, "dropout": 0.05, "momentum": 0.9997116110486899},
    ]


PROGRAM = """
import hoptree as ht
from hoptree.search import Optuna
from hoptree.search.sampling import make_sampler
from hoptree.search.space import describe

space = ht.where(
    {
        "lr": ht.multistep(ht.log(1e-4, 0.1), at=ht.choice([4], [4, 8]), gamma=0.5),
        "opt": ht.choice({"name": "sgd", "momentum": ht.uniform(0, 1)}, {"name": "adam", "b1": ht.uniform(0, 1)}),
        "width": ht.integer(1, 64),
    },
    lambda config: config["width"] not in {3, 4, 5} and config["opt.name"] in {"sgd", "adam"},
)
print(describe(space))
for kind in ("random", "sobol", "latin-hypercube", Optuna("tpe"), Optuna("cma-es")):
    sampler = make_sampler(kind, space, 7, 24)
    for number in range(24):
        config = sampler.ask()
        print(config)
        sampler.tell(number, 1, config["lr"](0))
"""


@pytest.mark.slow
def test_every_process_gives_the_same():
    printed = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 1 + 5 * 24


# --- evenness ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 16, 100])
def test_every_cell_of_a_latin_hypercube_has_one_config(count: int):
    space = {"a": ht.uniform(0, 1), "b": ht.log(1, 2), "c": ht.integer(1, count)}
    configs = asked("latin-hypercube", space, count)
    assert sorted(int(c["a"] * count) for c in configs) == list(range(count))
    assert sorted(c["c"] for c in configs) == list(range(1, count + 1))


def test_a_sobol_sequence_fills_cells_of_every_shape():
    configs = asked("sobol", {"a": ht.uniform(0, 1), "b": ht.uniform(0, 1)}, 256)
    points = [(c["a"], c["b"]) for c in configs]
    for columns in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        rows = 256 // columns
        cells = {(int(a * columns), int(b * rows)) for a, b in points}
        assert len(cells) == 256


def test_sobol_sequences_do_not_end_and_skip_rejected_configs():
    space = ht.where({"a": ht.uniform(0, 1)}, lambda c: c["a"] < 0.5)
    every = make_sampler("sobol", {"a": ht.uniform(0, 1)}, 3)
    low = [c for c in (every.ask() for _ in range(600)) if c is not None and c["a"] < 0.5]
    assert len(low) == 300
    assert asked("sobol", space, 300, 3) == low


# --- how many ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [*SAMPLERS, "grid"])
def test_a_space_that_has_an_end_is_given_once(sampler: str):
    made = make_sampler(sampler, {"a": ht.choice(1, 2), "b": ht.integer(1, 3)}, 0, 100)
    given = [made.ask() for _ in range(8)]
    assert {tuple(c.values()) for c in given if c is not None} == {(a, b) for a in (1, 2) for b in (1, 2, 3)}
    assert given[6:] == [None, None]


def test_a_space_with_one_rare_option_is_given_completely():
    """Towards the end 999 of 1,000 draws repeat: the remaining configs are enumerated."""
    space = {
        "a": ht.choice(0, ht.choice(1, ht.choice(2, ht.choice(3, ht.choice(4, ht.choice(5, ht.choice(6, 7)))))))
    }
    for seed in range(20):
        assert sorted(c["a"] for c in asked("random", space, 9, seed)) == list(range(8))


@pytest.mark.parametrize("sampler", [*SAMPLERS, "grid"])
def test_a_count_is_an_upper_limit(sampler: str):
    made = make_sampler(sampler, {"a": ht.integer(1, 50)}, 0, 4)
    given = [made.ask() for _ in range(6)]
    assert None not in given[:4]
    assert given[4:] == [None, None]
    made.tell(0, 1, 0.5)  # they ignore losses


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("best", {"a": 1}, 0),
            "sampler: 'best'; expected one of random, grid, sobol, latin-hypercube, settings such as",
        ),
        ((None, {"a": 1}, 0), "sampler: None; expected one of"),
        (("random", {"a": 1}, 0, 0), "count: 0; expected a number of configs, at least 1"),
        (("random", {"a": 1}, 0, True), "count: True; expected"),
        (("latin-hypercube", {"a": 1}, 0), "sampler: 'latin-hypercube' without a count; expected the number"),
    ],
)
def test_a_value_that_is_not_a_sampler_is_refused(arguments: Any, message: str):
    with pytest.raises(WorkloadError) as caught:
        make_sampler(*arguments)
    assert str(caught.value).startswith(message)


def test_without_scipy_a_sobol_sequence_says_what_to_install():
    program = (
        "import sys; sys.modules['scipy'] = None\n"
        "from hoptree.search.sampling import make_sampler\n"
        "make_sampler('sobol', {'a': 1}, 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900)
    assert "MissingExtraError: sampler 'sobol': needs scipy" in done.stderr
    assert "pip install 'hoptree[sampling]'" in done.stderr
