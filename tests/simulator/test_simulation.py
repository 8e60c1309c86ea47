"""Simulated runs: times that can be computed by hand, faults, and bounds that hold."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.core.events import Event, StateLost, TrialAsked, UnitFinished, WorkerJoined, WorkerLost
from hoptree.core.lineage import Values
from hoptree.core.policies import POLICIES
from hoptree.core.schedules import multistep
from hoptree.core.steps import Step
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.search import Decision, Extend, Stop, Train
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, WorkerSpec, Workload
from hoptree.simulator.workload import Landscape
from tests.core.strategies import configs


class Seen:
    """An observer that counts events and records times."""

    def __init__(self) -> None:
        self.count: Counter[type[Any]] = Counter()
        self.times: dict[type[Any], list[float]] = {}

    def see(self, step: Step) -> None:
        for record in (step.event, *step.actions):
            self.count[type(record)] += 1
            self.times.setdefault(type(record), []).append(step.now)


def one(units: int = 3, **more: Any) -> Workload:
    """Return one config on one partition: one unit after the other."""
    return Workload(configs=1, epochs=units, partitions=1, **more)


def spans(result: Simulation) -> list[tuple[str, float, float, str]]:
    return [(span.worker, span.start, span.end, span.kind) for span in result.timeline.spans]


# --- times by hand ----------------------------------------------------------------------------------------


def test_units_of_one_lineage_follow_each_other():
    result = simulate(one(4, seconds=2.5), Cluster(workers=1), check=True)
    assert (result.makespan, result.bound, result.units, result.utilisation) == (10.0, 10.0, 4, 1.0)
    assert spans(result) == [("w0", 2.5 * unit, 2.5 * (unit + 1), "unit") for unit in range(4)]


def test_a_faster_worker_takes_less_time():
    workers = [
        WorkerSpec(name="slow", speed=0.5, partitions=(0,)),
        WorkerSpec(name="fast", speed=4.0, partitions=(1,)),
    ]
    result = simulate(
        Workload(configs=1, epochs=2, partitions=2, seconds=2.0), Cluster(workers=workers), check=True
    )
    assert result.makespan == result.bound == 2 * (2.0 / 0.5 + 2.0 / 4.0)


def test_configs_may_differ_in_time():
    workload = Workload(configs=3, partitions=1, seconds=[1.0, 2.0, 4.0])
    assert simulate(workload, Cluster(workers=1), check=True).makespan == 7.0


def test_values_may_make_a_unit_longer_and_a_schedule_changes_it_on_the_way():
    workload = Workload(
        configs=[{"batch_size": multistep(32, at=[2], gamma=2)}],
        epochs=4,
        partitions=1,
        factors={"batch_size": {"32": 2.0, "64": 1.5}, "unknown": {"1": 9.0}},
    )
    assert simulate(workload, Cluster(workers=1), check=True).makespan == 2 * 2.0 + 2 * 1.5


def test_evaluation_takes_time_where_it_is_requested():
    result = simulate(one(4, every=2, evaluation_seconds=0.5), Cluster(workers=1), check=True)
    assert result.makespan == 4 + 2 * 0.5
    assert [kind for *_, kind in spans(result)].count("evaluation") == 2


def test_a_hop_takes_latency_and_size_over_bandwidth():
    workload = Workload(configs=1, epochs=3, partitions=2, state_bytes=1000.0)
    result = simulate(workload, Cluster(workers=2, bandwidth=500.0, latency=0.25), check=True)
    assert result.hops == 5
    assert result.bytes_hopped == 5000.0
    assert result.makespan == 6 + 5 * (0.25 + 1000.0 / 500.0)
    free = simulate(workload, Cluster(workers=2), check=True)
    assert (free.hops, free.makespan) == (5, 6.0)
    still = simulate(workload, Cluster(workers=1, bandwidth=500.0), check=True)
    assert (still.hops, still.makespan) == (0, 6.0)


def test_workers_that_have_to_be_provisioned_come_later():
    workload = Workload(configs=4, epochs=2, partitions=2)
    at_once = simulate(workload, Cluster(workers=2), check=True)
    seen = Seen()
    later = simulate(workload, Cluster(workers=2, provisioning=30.0), watches=[seen.see], check=True)
    assert later.makespan == at_once.makespan + 30.0
    assert seen.times[WorkerJoined] == [30.0, 30.0]
    assert seen.times[TrialAsked] == [0.0] * 4


def test_a_worker_may_join_late():
    workers = [WorkerSpec(name="a", partitions=(0,)), WorkerSpec(name="b", partitions=(1,), joins=10.0)]
    result = simulate(Workload(configs=1, partitions=2), Cluster(workers=workers, provisioning=1.0), check=True)
    assert result.makespan in (12.0, 13.0)  # depends on which partition comes first


def test_a_search_may_stop_and_extend():
    class Choosy:
        def start(self) -> list[Decision]:
            return [Train({"lr": 0.1}, 5, 1), Train({"lr": 0.2}, 1)]

        def tell(self, news: Report | EndTrial) -> list[Decision]:
            match news:
                case Report(0, 2, _):
                    return [Stop(0)]
                case Report(1, 1, _):
                    return [Extend(1, 3)]
                case _:
                    return []

    result = simulate(Workload(configs=1, partitions=1), Cluster(workers=2), search=Choosy(), check=True)
    assert {n: (t.ending, t.reached) for n, t in result.engine.trials.items()} == {
        0: ("stopped", 2),
        1: ("complete", 3),
    }


def test_landscapes_are_functions_of_values():
    def seconds(values: Values) -> float:
        lr = values.at(0.0)["lr"]
        assert isinstance(lr, float)
        return 10 * lr

    reports: list[dict[str, float]] = []

    def watch(step: Step) -> None:
        reports.extend(action.metrics for action in step.actions if isinstance(action, Report))

    landscape = Landscape(seconds, lambda values, epoch, key: {"lr": values.at(epoch)["lr"], "epoch": epoch})
    workload = Workload(configs=[{"lr": 0.5}], epochs=2, partitions=1, every=1)
    result = simulate(workload, Cluster(workers=1), landscape=landscape, watches=[watch], check=True)
    assert result.makespan == 10.0
    assert reports == [{"lr": 0.5, "epoch": 1}, {"lr": 0.5, "epoch": 2}]


# --- chance -----------------------------------------------------------------------------------------------

CHANCE = [
    Cluster(workers=3, noise=0.4),
    Cluster(workers=3, stragglers=0.3, straggling=5.0),
    Cluster(workers=3, noise=0.2, faults=[FlakyUnits(0.1), StateLoss(0.1), Crash("w1", 3.0, 8.0, True)]),
]


@pytest.mark.parametrize("cluster", CHANCE)
@pytest.mark.parametrize("order", ["strict", "free"])
def test_chance_is_reproduced_by_the_seed(cluster: Cluster, order: str):
    workload = Workload(configs=5, epochs=2, partitions=3)
    runs = [simulate(workload, cluster, order=order, seed=seed, check=True) for seed in (1, 1, 2)]
    assert spans(runs[0]) == spans(runs[1])
    assert runs[0].to_dict() == runs[1].to_dict()
    assert spans(runs[0]) != spans(runs[2])


def test_noise_spreads_unit_times_around_their_mean():
    result = simulate(one(2000), Cluster(workers=1, noise=0.3))
    assert result.makespan == pytest.approx(2000, rel=0.03)
    times = [end - start for _, start, end, _ in spans(result)]
    spread = (sum((time - 1) ** 2 for time in times) / len(times)) ** 0.5
    assert spread == pytest.approx(0.3, rel=0.2)


def test_stragglers_take_longer_and_the_others_do_not():
    result = simulate(one(500), Cluster(workers=1, stragglers=0.2, straggling=4.0))
    times = Counter(round(end - start, 6) for _, start, end, _ in spans(result))
    assert set(times) == {1.0, 4.0}
    assert times[4.0] / 500 == pytest.approx(0.2, abs=0.06)


# --- faults -----------------------------------------------------------------------------------------------


def test_a_crash_costs_the_unit_under_way():
    result = simulate(one(3), Cluster(workers=1, faults=[Crash("w0", 1.5, 3.0)]), check=True)
    assert (result.makespan, result.units) == (5.0, 3)
    assert spans(result) == [
        ("w0", 0.0, 1.0, "unit"),
        ("w0", 1.0, 1.5, "failed"),
        ("w0", 1.5, 3.0, "down"),
        ("w0", 3.0, 4.0, "unit"),
        ("w0", 4.0, 5.0, "unit"),
    ]


def test_a_volatile_crash_costs_the_states_too():
    seen = Seen()
    cluster = Cluster(workers=1, faults=[Crash("w0", 2.5, 4.0, True)])
    result = simulate(one(3), cluster, watches=[seen.see], check=True)
    assert (result.makespan, result.units) == (7.0, 5)
    assert seen.count[StateLost] == 1


def test_a_worker_may_crash_again_and_again():
    crashes = [Crash("w0", 1.5 + 3 * n, 2.75 + 3 * n) for n in range(3)]
    seen = Seen()
    result = simulate(one(4), Cluster(workers=1, faults=crashes), watches=[seen.see], retries=0, check=True)
    assert (result.units, result.makespan) == (4, 9.75)  # one unit before each crash, one after the last
    assert seen.count[WorkerLost] == 3
    assert {t.ending for t in result.engine.trials.values()} == {"complete"}


@pytest.mark.parametrize("order", ["strict", "free"])
def test_replicas_replace_a_permanently_lost_worker(order: str):
    workload = Workload(configs=4, epochs=3, partitions=4)
    cluster = Cluster(workers=4, replicas=2, faults=[Crash("w1", 2.5)])
    result = simulate(workload, cluster, order=order, check=True)
    assert {t.ending for t in result.engine.trials.values()} == {"complete"}
    assert all(start < 2.5 for worker, start, _, _ in spans(result) if worker == "w1")
    assert result.units == result.work.unique


def test_flaky_units_are_retried():
    cluster = Cluster(workers=2, faults=[FlakyUnits(0.3, "bad luck")])
    workload = Workload(configs=6, epochs=3, partitions=2)
    result = simulate(workload, cluster, retries=50, check=True)
    assert {t.ending for t in result.engine.trials.values()} == {"complete"}
    kinds = Counter(kind for *_, kind in spans(result))
    assert kinds["unit"] == result.units == 36
    assert kinds["failed"] > 0


def test_flaky_units_without_retries_fail_trials_with_the_reason():
    cluster = Cluster(workers=2, faults=[FlakyUnits(0.3, "bad luck")])
    result = simulate(Workload(configs=8, epochs=3, partitions=2), cluster, retries=0, check=True)
    failed = [t for t in result.engine.trials.values() if t.ending == "failed"]
    assert 0 < len(failed) == result.to_dict()["failed_trials"]
    assert {t.reason for t in failed} == {"bad luck"}
    assert "failed trials" in result.table()


def test_lost_states_are_trained_again():
    seen = Seen()
    cluster = Cluster(workers=2, faults=[StateLoss(0.2)])
    workload = Workload(configs=4, epochs=3, partitions=2)
    result = simulate(workload, cluster, watches=[seen.see], seed=1, check=True)
    assert seen.count[StateLost] > 0
    assert result.units >= result.work.unique == 24
    assert {t.ending for t in result.engine.trials.values()} == {"complete"}


# --- what always holds ------------------------------------------------------------------------------------

workers_ = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.sampled_from([0.5, 1.0, 1.0, 2.0]), min_size=count, max_size=count)
)


def named(speeds: list[float]) -> list[WorkerSpec]:
    return [WorkerSpec(name=f"w{index}", speed=speed) for index, speed in enumerate(speeds)]


@settings(max_examples=80, deadline=None)
@given(
    some=st.lists(configs(), min_size=1, max_size=6),
    epochs=st.integers(1, 3),
    partitions=st.integers(1, 5),
    speeds=workers_,
    policy=st.sampled_from(POLICIES),
    order=st.sampled_from(["strict", "free"]),
    details=st.fixed_dictionaries({"ahead": st.booleans(), "affinity": st.booleans()}),
    data=st.data(),
)
def test_no_run_is_shorter_than_the_bound(
    some: list[Any],
    epochs: int,
    partitions: int,
    speeds: list[float],
    policy: str,
    order: str,
    details: dict[str, bool],
    data: st.DataObject,
):
    every = data.draw(st.integers(0, 2))
    workload = Workload(
        configs=some,
        epochs=epochs,
        partitions=partitions,
        every=every,
        share=data.draw(st.booleans()),
        barrier=bool(every) and data.draw(st.booleans()),
        factors={"momentum": {"0.9": 2.0}},
    )
    cluster = Cluster(workers=named(speeds), replicas=data.draw(st.integers(1, len(speeds))))
    result = simulate(workload, cluster, policy=policy, order=order, check=True, **details)
    assert result.makespan >= result.bound * (1 - 1e-9)
    assert result.units == result.work.unique
    assert 0 < result.utilisation <= 1 + 1e-9
    assert {t.ending for t in result.engine.trials.values()} == {"complete"}
    for name in {span.worker for span in result.timeline.spans}:
        own = sorted((start, end) for worker, start, end, _ in spans(result) if worker == name)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(own))


times_ = st.floats(0, 12).map(lambda time: round(time, 1))
crashes_ = st.builds(
    lambda worker, at, away, volatile: Crash(f"w{worker}", at, at + 0.1 + away, volatile),
    st.integers(0, 2),
    times_,
    times_,
    st.booleans(),
)
faults_ = st.lists(
    st.one_of(
        crashes_,
        st.builds(FlakyUnits, st.floats(0, 0.5)),
        st.builds(StateLoss, st.floats(0, 0.3)),
    ),
    max_size=5,
)


@settings(max_examples=80, deadline=None)
@given(
    some=st.lists(configs(), min_size=1, max_size=5),
    faults=faults_,
    replicas=st.integers(1, 3),
    order=st.sampled_from(["strict", "free"]),
    every=st.integers(0, 1),
    barrier=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_run_ends_whatever_fails_and_comes_back(
    some: list[Any], faults: list[Any], replicas: int, order: str, every: int, barrier: bool, seed: int
):
    workload = Workload(
        configs=some,
        epochs=2,
        partitions=3,
        every=every,
        barrier=barrier and bool(every),
        evaluation_seconds=0.3,
        state_bytes=1.0,
    )
    cluster = Cluster(workers=3, replicas=replicas, noise=0.1, bandwidth=5.0, faults=faults)
    result = simulate(workload, cluster, order=order, seed=seed, check=True)
    endings = {t.ending for t in result.engine.trials.values()}
    assert endings <= {"complete", "failed"}
    if not any(isinstance(fault, FlakyUnits) for fault in faults):
        assert endings == {"complete"}
    assert all(t.reason for t in result.engine.trials.values() if t.ending == "failed")


# --- placing ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_every_partition_has_as_many_holders_as_replicas(workers: int, partitions: int, data: st.DataObject):
    replicas = data.draw(st.integers(1, workers))
    placed = Cluster(workers=workers, replicas=replicas).placed(partitions)
    holders = Counter(partition for spec in placed for partition in spec.partitions)
    assert [spec.name for spec in placed] == [f"w{index}" for index in range(workers)]
    assert set(holders) == set(range(partitions))
    assert all(spec.partitions and len(set(spec.partitions)) == len(spec.partitions) for spec in placed)
    if workers <= partitions:
        assert set(holders.values()) == {replicas}
    else:
        assert min(holders.values()) >= min(replicas, workers // partitions)


def test_partitions_that_are_given_stay_where_they_are():
    cluster = Cluster(workers=[WorkerSpec(name="a", partitions=(2, 0)), WorkerSpec(name="b")])
    assert [spec.partitions for spec in cluster.placed(4)] == [(2, 0), (1, 3)]


def test_a_simulation_ends_when_it_is_enough():
    whole = simulate(Workload(configs=4, epochs=3, partitions=2), Cluster(workers=2))
    seen: list[Event] = []
    part = simulate(
        Workload(configs=4, epochs=3, partitions=2),
        Cluster(workers=2),
        watches=[lambda step: seen.append(step.event)],
        enough=lambda: sum(isinstance(event, UnitFinished) for event in seen) >= 5,
    )
    assert 5 <= part.units <= 6
    assert part.makespan < whole.makespan
    assert part.engine.live == 4
    with pytest.raises(WorkloadError, match=r"^enough: 5; expected a function"):
        simulate(Workload(configs=1), enough=5)
