"""The estimator learns the times of units, and how uncertain they are."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree import Cluster, Workload, simulate
from hoptree.core.actions import Evaluate, Origin, RunUnit
from hoptree.core.events import CostsLearned, StateEvaluated, UnitFinished, WorkerLost
from hoptree.core.lineage import Values, history, segments
from hoptree.core.schedules import Config, multistep
from hoptree.core.steps import RunIndex
from hoptree.estimate import Estimator
from hoptree.estimate.samples import Samples


def values_of(config: Config) -> Values:
    return segments(history(config), partitions=1, units=1)[0].values


def seconds_of(config: Config) -> float:
    """A net's time: a little per batch, and the arithmetic; Adam costs more than SGD."""
    batches = 10_000 / config["batch_size"]
    arithmetic = config["width"] * config["depth"] * 1e-6 * config["batch_size"]
    return batches * (1e-3 + arithmetic) * (1.3 if config["optimizer"] == "adam" else 1.0)


def some_config(random: Random) -> Config:
    return {
        "lr": 10 ** random.uniform(-5, -1),
        "width": random.choice([32, 64, 128, 256]),
        "depth": random.choice([1, 2, 4]),
        "batch_size": random.choice([16, 32, 64, 128]),
        "optimizer": random.choice(["adam", "sgd"]),
    }


ORIGIN = Origin({}, 0)


def unit(config: Config, run: int = 0, worker: str = "w", *, evaluate: bool = False) -> RunUnit:
    return RunUnit(
        run, worker, run, run, 0, 0, 0, f"key {run}", values_of(config), "", ORIGIN, f"key {run}", evaluate=evaluate
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_configs_that_were_never_measured_are_priced_within_a_third(seed: int) -> None:
    random, samples = Random(seed), Samples()
    for _ in range(60):
        config = some_config(random)
        samples.add(values_of(config), "w", seconds_of(config) * random.lognormvariate(0, 0.1))
    fit = samples.fit()
    assert fit is not None
    others = [some_config(random) for _ in range(40)]
    off = sorted(abs(math.log(fit.formula.of(values_of(c)) / seconds_of(c))) for c in others)
    assert off[20] < math.log(1.15)
    assert off[36] < math.log(1.35)


def test_most_units_end_within_the_range_expected() -> None:
    random, samples = Random(1), Samples()
    for _ in range(80):
        config = some_config(random)
        samples.add(values_of(config), "w", seconds_of(config) * random.lognormvariate(0, 0.2))
    fit = samples.fit()
    assert fit is not None
    inside = 0
    for _ in range(200):
        config = some_config(random)
        seconds = seconds_of(config) * random.lognormvariate(0, 0.2)
        off = abs(math.log(seconds / fit.formula.of(values_of(config))))
        inside += off < 2 * fit.spread(dict(config))
    assert inside >= 180


def test_one_measurement_prices_everything_alike_and_says_that_it_is_not_sure() -> None:
    samples = Samples()
    assert samples.fit() is None
    samples.add(values_of({"width": 8}), "w", 2.0)
    fit = samples.fit()
    assert fit is not None
    assert fit.formula.of(values_of({"width": 8})) == pytest.approx(2.0, rel=0.1)
    assert fit.formula.of(values_of({"width": 99})) == fit.formula.of(values_of({"width": 8}))
    assert fit.spread({"width": 8}) > 0.25


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_invalid_times_are_ignored(seconds: float) -> None:
    samples = Samples()
    samples.add(values_of({"width": 8}), "w", seconds)
    assert samples.count == 0


def test_values_that_are_missing_or_mixed_are_categories() -> None:
    samples = Samples()
    for _ in range(5):
        samples.add(values_of({"kind": "cnn", "filters": 8}), "w", 4.0)
        samples.add(values_of({"kind": "mlp"}), "w", 1.0)
        samples.add(values_of({"kind": None, "flag": True}), "w", 2.0)
    fit = samples.fit()
    assert fit is not None
    assert fit.formula.of(values_of({"kind": "cnn", "filters": 8})) == pytest.approx(4.0, rel=0.15)
    assert fit.formula.of(values_of({"kind": "mlp"})) == pytest.approx(1.0, rel=0.15)
    assert fit.formula.of(values_of({"kind": None, "flag": True})) == pytest.approx(2.0, rel=0.15)


def test_slow_workers_are_distinguished_from_slow_configs() -> None:
    samples = Samples()
    random = Random(0)
    for _ in range(4):
        for index in range(40):
            worker = f"w{index % 2}"
            config = some_config(random)
            samples.add(values_of(config), worker, seconds_of(config) * (3.0 if worker == "w1" else 1.0))
        samples.fit()
    assert samples.factor("w1") / samples.factor("w0") == pytest.approx(3.0, rel=0.25)
    assert samples.factor("another") == 1.0


def test_it_learns_from_steps_and_returns_a_formula_only_if_it_changed() -> None:
    estimator, runs = Estimator(), RunIndex()
    estimator.watch(
        runs.step(WorkerLost("old"), 0.0, False, [unit({"width": 8}, 0), unit({"width": 32}, 1, evaluate=True)])
    )
    assert estimator.news() is None
    estimator.watch(runs.step(UnitFinished(0, "w", 1.0), 1.0, False, []))
    first = estimator.news()
    assert first is not None
    estimator.watch(runs.step(first, 1.0, False, []))
    assert estimator.news() is None
    estimator.watch(runs.step(UnitFinished(1, "w", 4.0), 2.0, False, []))
    estimator.watch(runs.step(StateEvaluated(1, "w", {"loss": 1.0}, 0.5), 2.0, False, []))
    second = estimator.news()
    assert second is not None
    assert second.formula.of(values_of({"width": 32})) > 2 * second.formula.of(values_of({"width": 8}))
    assert estimator.evaluations.count == 1
    estimator.watch(runs.step(second, 2.0, False, []))
    assert estimator.news() is None


def test_the_longest_that_a_run_may_take_grows_with_its_values() -> None:
    estimator, runs = Estimator(), RunIndex()
    assert estimator.longest(unit({"width": 8})) == 0.0
    for number, width in enumerate([8, 8, 8, 128, 128, 128]):
        estimator.watch(runs.step(WorkerLost("old"), 0.0, False, [unit({"width": width}, number)]))
        estimator.watch(runs.step(UnitFinished(number, "w", width / 8), 0.0, False, []))
    small, large = estimator.longest(unit({"width": 8})), estimator.longest(unit({"width": 128}))
    assert 1.0 < small < 8.0 < 16.0 < large
    assert estimator.longest(unit({"width": 8, "depth": 3})) >= 16.0  # the effect of depth is unknown
    assert estimator.longest(unit({"width": 64})) < large
    assert estimator.longest(Evaluate(9, "w", 0, 1, "key", "lineage", ORIGIN)) == 0.0


def test_a_simulation_teaches_it_what_the_workload_says() -> None:
    configs = [{"lr": multistep(0.1, at=[1], gamma=g), "batch_size": b} for g in (0.1, 0.5) for b in (32, 64, 128)]
    workload = Workload(configs=configs, epochs=2, partitions=2, factors={"batch_size": {"32": 4.0, "64": 2.0}})
    estimator = Estimator()
    simulate(workload, Cluster(workers=2), watches=[estimator.watch])
    news = estimator.news()
    assert isinstance(news, CostsLearned)
    for batch, seconds in ((32, 4.0), (64, 2.0), (128, 1.0)):
        assert news.formula.of(values_of({"lr": 0.1, "batch_size": batch})) == pytest.approx(seconds, rel=0.1)


def test_values_that_do_not_matter_are_ignored() -> None:
    samples = Samples()
    for number, width in enumerate([8, 16, 32] * 4):
        samples.add(values_of({"width": width, "lr": 10.0**-number}), "w", width / 8)
    samples.depend_on(frozenset({"width"}))
    other = values_of({"width": 16, "lr": 0.5})
    assert samples.expected(other) == pytest.approx(2.0, rel=0.03)
    assert [kind.measured for kind in samples.kinds] == [4, 4, 4]
    assert samples.doubt({other: 1.0}) < 0.1
    samples.depend_on(frozenset({"width", "lr"}))
    assert samples.expected(other) > 0
    assert len(samples.kinds) == 12


def test_values_that_were_often_measured_take_what_was_measured() -> None:
    samples = Samples()
    times = {8: 1.0, 16: 1.1, 24: 5.0, 32: 1.2}  # which no smooth curve explains
    for width, seconds in times.items():
        for _ in range(30):
            samples.add(values_of({"width": width}), "w", seconds)
    for width, seconds in times.items():
        assert samples.expected(values_of({"width": width})) == pytest.approx(seconds, rel=0.03)
    fit = samples.fit()
    assert fit is not None
    assert fit.formula.of(values_of({"width": 24})) < 4.0  # what the curve says
