"""Optuna as a sampler: it learns, it can be replayed, and it stays in the space."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Callable
from random import Random
from statistics import fmean, median
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hoptree as ht
from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config, Schedule
from hoptree.search import Optuna, make_sampler
from hoptree.search.fidelity import comparable
from hoptree.search.optuna_sampler import OptunaSampler
from hoptree.search.space import SpaceError
from tests.search.spaces import asked

GP = pytest.param("gp", marks=pytest.mark.slow)  # seconds for every proposal
LEARNING = ("tpe", "cma-es", GP)
BOWL = {"x": ht.uniform(-5, 5), "lr": ht.log(1e-5, 1.0)}
CONDITIONAL = {
    "optimizer": ht.choice(
        {"name": "sgd", "momentum": ht.uniform(0, 1), "nesterov": ht.choice(True, False)},
        {"name": "adam", "beta1": ht.uniform(0, 1)},
    ),
    "lr": ht.multistep(ht.log(1e-5, 1.0), at=[ht.integer(1, 9), ht.integer(1, 9)], gamma=ht.choice(0.1, 0.5)),
    "dropout": ht.uniform(0, 0.5, step=0.05),
    "width": ht.integer(8, 128, log=True),
    "depth": ht.integer(2, 10, step=2),
}


def bowl(config: Config) -> float:
    return (config["x"] - 2) ** 2 + (math.log10(config["lr"]) + 3) ** 2


def conditional(config: Config) -> float:
    rate = config["lr"]
    assert isinstance(rate, Schedule)
    inner = config.get("optimizer.momentum", 2.0) - 0.9
    return (math.log10(rate(0)) + 3) ** 2 + inner**2 + (config["width"] - 64) ** 2 / 1000


def best_of(
    method: str, seed: int, trials: int, loss: Callable[[Config], float], space: Any, **options: Any
) -> float:
    sampler = OptunaSampler(space, seed, method, options)
    losses = []
    while len(losses) < trials:
        batch = [sampler.ask() for _ in range(2)]
        for config in batch:
            assert config is not None
            losses.append(loss(config))
            sampler.tell(len(losses) - 1, 1, losses[-1])
    return min(losses)


# --- it learns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "trials", "seeds", "options"),
    [
        ("tpe", 40, 7, {}),
        ("cma-es", 60, 7, {}),
        pytest.param("gp", 14, 3, {"n_startup_trials": 5}, marks=pytest.mark.slow),
    ],
)
def test_learning_beats_chance_at_the_same_budget(method: str, trials: int, seeds: int, options: dict[str, Any]):
    learnt = median(best_of(method, seed, trials, bowl, BOWL, **options) for seed in range(seeds))
    drawn = median(best_of("random", seed, trials, bowl, BOWL) for seed in range(seeds))
    assert learnt < drawn / 3


@pytest.mark.slow
def test_tpe_beats_chance_in_a_conditional_space():
    learnt = median(best_of("tpe", seed, 50, conditional, CONDITIONAL) for seed in range(5))
    drawn = median(best_of("random", seed, 50, conditional, CONDITIONAL) for seed in range(5))
    assert learnt < drawn


def test_tpe_learns_from_losses_after_different_epochs():
    """Successive halving by hand: the best third of every nine continues, and short runs have higher losses."""

    def best(method: str, seed: int) -> float:
        sampler = OptunaSampler(BOWL, seed, method)
        found = math.inf
        for first in range(0, 54, 9):
            configs = {first + n: sampler.ask() for n in range(9)}
            for epoch in (1, 3, 9):
                losses = {n: bowl(config) + 100 / epoch for n, config in configs.items() if config is not None}
                for n, loss in losses.items():
                    sampler.tell(n, epoch, loss)
                    found = min(found, loss - 100 / epoch)
                configs = {n: configs[n] for n in sorted(losses, key=losses.__getitem__)[: len(losses) // 3]}
        return found

    assert median(best("tpe", seed) for seed in range(7)) < median(best("random", seed) for seed in range(7)) / 2


# --- what is compared -------------------------------------------------------------------------------------

TOLD = st.dictionaries(
    st.integers(0, 20),
    st.dictionaries(st.sampled_from([1, 3, 9, 27]), st.floats(-1, 1) | st.just(math.inf), min_size=1),
    min_size=1,
)


@given(TOLD, st.integers(1, 12))
def test_losses_are_compared_at_the_deepest_epoch_that_enough_have_reached(
    reported: dict[int, dict[int, float]], enough: int
):
    values = comparable(reported, enough)
    finite = {config for config, losses in reported.items() if math.isfinite(losses[max(losses)])}
    assert all(map(math.isfinite, values.values()))
    if not finite:
        assert values == {}
        return
    assert len(finite & set(values)) >= min(enough, len(finite))
    assert set(reported) - finite <= set(values)
    level = min(max(reported[config]) for config in finite & set(values))
    for config in finite & set(values):
        assert values[config] in {loss for epoch, loss in reported[config].items() if epoch >= level}
    assert all(max(reported[config]) < level for config in finite - set(values))
    assert all(values[config] == max(values.values()) for config in set(reported) - finite)


def test_only_failures_teach_nothing_and_break_nothing():
    for method in ("tpe", "cma-es", "gp"):
        sampler = OptunaSampler(BOWL, 0, method, {"n_startup_trials": 2})
        for number in range(6):
            assert sampler.ask() is not None
            sampler.tell(number, 1, math.inf)


@pytest.mark.parametrize("method", LEARNING)
def test_failures_among_losses_are_taken(method: str):
    sampler = OptunaSampler(BOWL, 0, method, {"n_startup_trials": 3})
    for number in range(12):
        config = sampler.ask()
        assert config is not None
        sampler.tell(number, 1, math.inf if number % 3 == 2 else bowl(config))


# --- it can be replayed -----------------------------------------------------------------------------------


def history(method: str, seed: int, steps: int, space: Any, loss: Callable[[Config], float]) -> list[Any]:
    """Ask and tell in a random order, with several running and some told twice; return the calls."""
    random = Random(seed)
    sampler = OptunaSampler(space, seed, method, {} if method == "random" else {"n_startup_trials": 3})
    happened: list[Any] = []
    open_: list[tuple[int, Config, int]] = []
    count = 0
    for _ in range(steps):
        if not open_ or (len(open_) < 4 and random.random() < 0.5):
            config = sampler.ask()
            happened.append(config)
            assert config is not None
            open_.append((count, config, 1))
            count += 1
        else:
            number, config, epoch = open_.pop(random.randrange(len(open_)))
            reported = (number, epoch, loss(config) + 1 / epoch)
            sampler.tell(*reported)
            happened.append(reported)
            if random.random() < 0.5:
                open_.append((number, config, epoch * 3))
    return happened


@pytest.mark.parametrize(
    ("method", "space", "loss", "steps"),
    [
        ("tpe", BOWL, bowl, 60),
        ("cma-es", BOWL, bowl, 60),
        pytest.param("gp", BOWL, bowl, 16, marks=pytest.mark.slow),
        ("random", BOWL, bowl, 60),
        ("tpe", CONDITIONAL, conditional, 60),
        ("cma-es", CONDITIONAL, conditional, 60),
        pytest.param("gp", CONDITIONAL, conditional, 8, marks=pytest.mark.slow),
    ],
)
def test_the_same_asks_and_tells_give_the_same_configs(
    method: str, space: Any, loss: Callable[[Config], float], steps: int
):
    happened = history(method, 5, steps, space, loss)
    again = OptunaSampler(space, 5, method, {} if method == "random" else {"n_startup_trials": 3})
    for event in happened:
        if isinstance(event, tuple):
            again.tell(*event)
        else:
            assert again.ask() == event


def test_the_order_of_reported_losses_does_not_matter():
    given = []
    for order in (range(12), reversed(range(12))):
        sampler = OptunaSampler(BOWL, 1, "tpe")
        configs = [sampler.ask() for _ in range(12)]
        for number in order:
            config = configs[number]
            assert config is not None
            sampler.tell(number, 1, bowl(config))
        given.append([sampler.ask() for _ in range(3)])
    assert given[0] == given[1]


def test_the_first_configs_are_those_of_the_random_sampler():
    for method in ("tpe", "gp", "random"):
        sampler = OptunaSampler(CONDITIONAL, 3, method)
        assert [sampler.ask() for _ in range(12)] == asked("random", CONDITIONAL, 12, 3)


# --- it keeps to the space --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", LEARNING)
def test_proposals_keep_to_the_space(method: str):
    space = ht.where(CONDITIONAL, lambda c: c["width"] * c["depth"] < 512)
    sampler = OptunaSampler(space, 0, method, {"n_startup_trials": 3})
    seen = set()
    for number in range(5 if method == "gp" else 40):
        config = sampler.ask()
        assert config is not None
        sampler.tell(number, 1, conditional(config))
        seen.add(repr(config))
        assert ("optimizer.momentum" in config) == (config["optimizer.name"] == "sgd")
        assert ("optimizer.beta1" in config) == (config["optimizer.name"] == "adam")
        assert config["dropout"] in [k * 5 / 100 for k in range(11)]
        assert config["depth"] in (2, 4, 6, 8, 10)
        assert isinstance(config["width"], int)
        assert config["width"] * config["depth"] < 512
        first, second = config["lr"].arguments[1]
        assert first < second
    assert len(seen) == number + 1


def test_steps_in_a_log_range_are_kept_to_and_learned_from():
    space = {"lr": ht.log(0.001, 1.0, step=0.003), "width": ht.integer(8, 1024, step=8, log=True)}
    means = {}
    for method in ("random", "tpe", "cma-es"):
        sampler = OptunaSampler(space, 0, method, {} if method == "random" else {"n_startup_trials": 5})
        losses = []
        for number in range(40):
            config = sampler.ask()
            assert config is not None
            assert any(config["lr"] == round(0.001 + 0.003 * k, 6) for k in range(334))
            assert isinstance(config["width"], int)
            assert config["width"] % 8 == 0
            losses.append(abs(math.log(config["lr"] / 0.05)) + abs(math.log(config["width"] / 64)))
            sampler.tell(number, 1, losses[-1])
        means[method] = fmean(losses)
    assert max(means["tpe"], means["cma-es"]) < 0.8 * means["random"]


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["tpe", "cma-es", "random"]), st.integers(0, 99))
def test_a_space_that_has_an_end_is_given_once(method: str, seed: int):
    space = {"a": ht.choice("x", "y"), "b": ht.integer(1, 4), "c": ht.integer(7, 7), "d": ht.choice("only")}
    sampler = OptunaSampler(space, seed, method, {} if method == "random" else {"n_startup_trials": 2})
    given = []
    for number in range(10):
        config = sampler.ask()
        given.append(config)
        if config is not None:
            sampler.tell(number, 1, float(config["b"]))
    assert given[8:] == [None, None]
    assert len({repr(config) for config in given[:8]}) == 8


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("space", [{"a": 1}, {"a": ht.uniform(0, 1)}, {"a": ht.choice(*range(9))}])
def test_spaces_of_one_or_no_parameter(method: str, space: Any):
    sampler = OptunaSampler(space, 0, method, {"n_startup_trials": 2})
    for number in range(8):
        config = sampler.ask()
        if config is None:
            assert number == 1
            break
        sampler.tell(number, 1, float(config["a"]))


# --- what users see ---------------------------------------------------------------------------------------


def test_the_record_is_a_sampler_of_other_procedures():
    sampler = make_sampler(Optuna("tpe", options={"n_startup_trials": 2}), BOWL, 0, 4)
    assert [sampler.ask() is None for _ in range(6)] == [False] * 4 + [True] * 2
    sampler.tell(3, 1, 0.5)


def test_optuna_is_quiet_and_its_log_is_left_as_it_was(capfd: pytest.CaptureFixture[str]):
    optuna.logging.set_verbosity(logging.INFO)
    sampler = OptunaSampler(CONDITIONAL, 0, "cma-es")
    for number in range(12):
        config = sampler.ask()
        assert config is not None
        sampler.tell(number, 1, conditional(config))
    assert optuna.logging.get_verbosity() == logging.INFO
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("best", {}, "method: 'best'; expected one of tpe, cma-es, gp, random"),
        ("tpe", {"n_start": 3}, "Optuna('tpe'): the sampler rejected {'n_start': 3"),
        ("cma-es", {"lr_adapt": True, "with_margin": True}, "Optuna('cma-es'): the sampler rejected"),
        ("tpe", {"seed": 3}, "Optuna('tpe'): the option seed; the seed is the study's, leave it out"),
        ("tpe", {"n_startup_trials": "3"}, "n_startup_trials: '3'; expected a whole number"),
        ("tpe", {"n_ei_candidates": 0}, "Optuna('tpe'): the sampler fails with {'n_ei_candidates': 0}: "),
        ("cma-es", {"popsize": "x"}, "Optuna('cma-es'): the sampler fails with {'popsize': 'x'}: "),
        ("random", {"n_startup_trials": 3}, "Optuna('random'): options ['n_startup_trials']; it takes none"),
    ],
)
def test_wrong_methods_and_options_are_refused_at_once(method: str, options: dict[str, Any], message: str):
    with pytest.raises(WorkloadError) as caught:
        OptunaSampler(BOWL, 0, method, options)
    assert str(caught.value).startswith(message)


def test_wrong_spaces_and_configs_are_refused():
    with pytest.raises(SpaceError, match=r"^x: uniform\(1, 0\) starts above"):
        OptunaSampler({"x": ht.uniform(1, 0)}, 0)
    with pytest.raises(WorkloadError, match="config: 0; expected one of the 0 that were asked for"):
        OptunaSampler(BOWL, 0).tell(0, 1, 0.5)


def test_without_optuna_the_extra_is_named():
    program = (
        "import sys; sys.modules['optuna'] = None\n"
        "from hoptree.search import Optuna, make_sampler\n"
        "print(make_sampler(Optuna('random'), {'a': 1}, 0).ask())\n"
        "make_sampler(Optuna('tpe'), {'a': 1}, 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900)
    assert done.stdout == "{'a': 1}\n"
    assert "MissingExtraError: Optuna('tpe'): needs optuna, which is not installed" in done.stderr
