"""All procedures keep the contract, run on the engine under faults, and stay small and fast at 2,000 trials."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Schedule
from hoptree.forecast.simulation import simulate
from hoptree.search import (
    ASHA,
    PBT,
    Goal,
    Hyperband,
    MedianStopping,
    Optuna,
    Procedure,
    Random,
    SuccessiveHalving,
)
from hoptree.search.grid import Grid
from hoptree.search.rungs import epochs_of
from hoptree.search.schedules import multistep
from hoptree.search.streams import share
from hoptree.search.value_kinds import choice, log, uniform
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, Workload
from hoptree.simulator.workload import Landscape
from hoptree.testing import ProcedureContract

LOSS = Goal("loss", maximize=False)
LEARNER = Optuna("tpe", options={"n_startup_trials": 4})


class TestGrid(ProcedureContract):
    space: ClassVar = {"lr": choice(0.1, 0.2, 0.3), "width": choice(8, 16)}
    synchronous = True
    most_epochs = 6 * 3

    @pytest.fixture
    def procedure(self) -> Procedure:
        return Grid(epochs=3)


class TestRandom(ProcedureContract):
    synchronous = True
    most_epochs = 7 * 3

    @pytest.fixture
    def procedure(self) -> Procedure:
        return Random(trials=7, epochs=3)


class TestSuccessiveHalving(ProcedureContract):
    synchronous = True
    most_epochs = 10 + 3 * 2 + 6

    @pytest.fixture
    def procedure(self) -> Procedure:
        return SuccessiveHalving(trials=10, max_epochs=9)


class TestHyperband(ProcedureContract):
    synchronous = True
    most_epochs = sum(map(epochs_of, Hyperband(max_epochs=9).brackets))

    @pytest.fixture(params=["random", LEARNER])
    def procedure(self, request: pytest.FixtureRequest) -> Procedure:
        return Hyperband(max_epochs=9, sampler=request.param)


class TestASHA(ProcedureContract):
    most_epochs = 14 * 9

    @pytest.fixture(params=["promote", "stop"])
    def procedure(self, request: pytest.FixtureRequest) -> Procedure:
        return ASHA(trials=14, max_epochs=9, mode=request.param, concurrent=4)


class TestASHAOnASamplerThatLearns(ProcedureContract):
    @pytest.fixture
    def procedure(self) -> Procedure:
        return ASHA(trials=14, max_epochs=4, factor=2, concurrent=4, sampler=LEARNER)


class TestMedianStopping(ProcedureContract):
    most_epochs = 14 * 5

    @pytest.fixture(params=[False, True])
    def procedure(self, request: pytest.FixtureRequest) -> Procedure:
        return MedianStopping(trials=14, epochs=5, startup=2, average=request.param, concurrent=4)


class TestPBT(ProcedureContract):
    synchronous = True
    most_epochs = 6 * 7

    @pytest.fixture(params=["random", LEARNER])
    def procedure(self, request: pytest.FixtureRequest) -> Procedure:
        return PBT(population=6, epochs=7, interval=2, sampler=request.param)


class TestPBTOnPartsAndSchedules(ProcedureContract):
    space: ClassVar = {
        "optimizer": choice({"name": "sgd", "momentum": uniform(0.0, 1.0)}, {"name": "adam"}),
        "lr": multistep(log(1e-3, 1.0), at=[3], gamma=0.1),
    }
    synchronous = True

    @pytest.fixture
    def procedure(self) -> Procedure:
        return PBT(population=6, epochs=7, interval=2, change=["optimizer.momentum", "lr"])


class TestOptuna(ProcedureContract):
    synchronous = True
    most_epochs = 12 * 3

    @pytest.fixture
    def procedure(self) -> Procedure:
        return Optuna("tpe", trials=12, epochs=3, batch=5, options={"n_startup_trials": 4})


class TestOptunaAsynchronous(ProcedureContract):
    most_epochs = 12 * 3

    @pytest.fixture
    def procedure(self) -> Procedure:
        return Optuna("tpe", trials=12, epochs=3, batch=5, options={"n_startup_trials": 4}, asynchronous=True)


PROCEDURES = [
    Random(12, 4),
    SuccessiveHalving(12, max_epochs=9),
    Hyperband(max_epochs=9),
    ASHA(20, max_epochs=9, concurrent=5),
    ASHA(20, max_epochs=9, mode="stop", concurrent=5),
    MedianStopping(20, epochs=6, startup=2, concurrent=5),
    PBT(population=6, epochs=6, interval=2),
    Optuna("random", trials=12, epochs=3),
]
SCHEDULES = {
    "lr": choice(*(multistep(0.1, at=[at], gamma=gamma) for at in range(1, 9) for gamma in (0.1, 0.5))),
    "width": choice(8, 16),
}


def named(value: Any) -> str:
    return type(value).__name__ if not isinstance(value, ASHA) else f"ASHA {value.mode}"


@pytest.mark.parametrize("procedure", PROCEDURES, ids=named)
@pytest.mark.parametrize("seed", range(3))
def test_on_the_engine_with_crashes_losses_and_failures(procedure: Procedure, seed: int):
    """Prefixes are shared, workers and states are lost, units fail: all invariants hold and all trials end."""
    cluster = Cluster(
        workers=3,
        replicas=2,
        noise=0.3,
        faults=[Crash("w1", at=4.0, back=9.0, volatile=True), FlakyUnits(0.15), StateLoss(0.05)],
    )
    result = simulate(
        Workload(partitions=3, evaluation_seconds=0.2),
        cluster,
        search=procedure.search(SCHEDULES, LOSS, seed),
        landscape=Landscape(lambda _: 1.0, lambda values, epoch, key: {"loss": share(seed, key) / epoch}),
        seed=seed,
        check=True,
        retries=1,
    )
    assert all(trial.ending is not None for trial in result.engine.trials.values())
    assert result.work.merge_rate > 1
    assert isinstance(dict(result.engine.trials[0].history[0].config)["lr"], Schedule)


@pytest.mark.parametrize("procedure", PROCEDURES, ids=named)
def test_its_text_is_the_same_in_every_process(procedure: Procedure):
    """A study identifies its search by its text."""
    code = f"from hoptree.search import *; print(repr({procedure!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.stdout.strip() == repr(procedure)


def test_optuna_needs_trials_and_epochs_as_a_search_only():
    with pytest.raises(WorkloadError, match="trials=None, epochs=None; expected both if Optuna is the search"):
        Optuna("tpe").search(SCHEDULES, LOSS, 0)
    with pytest.raises(WorkloadError, match="batch: 0; expected"):
        Optuna("tpe", trials=3, epochs=1, batch=0)


LARGE = """
import time
from bench.memory import peak_memory
from hoptree.search import *
from hoptree.search.streams import share
from hoptree.search.value_kinds import choice, log, uniform
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape

class Timed:
    def __init__(self, search):
        self.search, self.seconds, self.tells = search, 0.0, 0
    def start(self):
        return self.search.start()
    def tell(self, news):
        begun = time.process_time()
        decisions = self.search.tell(news)
        self.seconds += time.process_time() - begun
        self.tells += 1
        return decisions

space = {{"lr": log(1e-4, 1.0), "momentum": uniform(0.0, 1.0), "width": choice(8, 16, 32)}}
timed = Timed({procedure}.search(space, Goal("loss", False), 0))
landscape = Landscape(lambda _: 1.0, lambda values, epoch, key: {{"loss": share(key) + 1 / epoch}})
result = simulate(Workload(partitions=4), Cluster(workers=16), search=timed, landscape=landscape)
print(len(result.engine.trials), 1000 * timed.seconds / timed.tells, peak_memory() / 1e6)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "procedure",
    [
        "Random(2000, 20)",
        "SuccessiveHalving(2000, max_epochs=81)",
        "Hyperband(max_epochs=729, min_epochs=3, rounds=5)",
        "ASHA(2000, max_epochs=81, concurrent=64)",
        "ASHA(2000, max_epochs=81, concurrent=64, mode='stop')",
        "MedianStopping(2000, epochs=20, concurrent=64)",
        "PBT(population=200, epochs=40, interval=1)",
    ],
)
def test_two_thousand_trials_in_little_memory_and_time(procedure: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", LARGE.format(procedure=procedure)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    trials, milliseconds, megabytes = map(float, done.stdout.split())
    assert trials >= 2000
    assert milliseconds < 5
    assert megabytes < 300
