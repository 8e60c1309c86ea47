"""Each of these once failed: a found bug becomes a pinned test."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.core.engine import Engine
from hoptree.core.errors import InvariantError, ScheduleError, WorkloadError
from hoptree.core.events import TrialStopped, WorkerDrained
from hoptree.core.schedules import (
    Schedule,
    constant,
    cyclic,
    exponential,
    linear,
    multistep,
    piecewise,
    warmup,
)
from hoptree.core.steps import Step
from hoptree.core.trials import Trials
from hoptree.forecast.simulation import simulate
from hoptree.optimize import solve
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, Workload
from tests.core.driver import Driver
from tests.core.test_planned import shop, shops


@settings(max_examples=100, deadline=None)
@given(shops, st.sampled_from(["longest-path", "random"]), st.integers(0, 9))
def test_planned_takes_exactly_as_long_as_the_solved_schedule(problem, method, seed):
    costs, speeds = problem
    solution = solve([[c / s for s in speeds] for c in costs], method=method, seed=seed)
    assert simulate(*shop(costs, speeds), policy=solution.starts, check=True).makespan == solution.makespan


@settings(max_examples=20, deadline=None)
@given(shops, st.integers(0, 99))
def test_a_planned_schedule_is_finished_despite_faults(problem, seed):
    costs, speeds = problem
    starts = solve([[c / s for s in speeds] for c in costs], method="longest-path").starts
    workload, cluster = shop(costs, speeds, epochs=2)
    faults = [FlakyUnits(0.3), StateLoss(0.1), Crash("w0", 1.1, 2.3, True)]
    upset = Cluster(workers=cluster.workers, noise=0.2, faults=faults)
    result = simulate(workload, upset, policy=starts, seed=seed, retries=1, check=True)
    assert {trial.ending for trial in result.engine.trials.values()} <= {"complete", "failed"}


@pytest.mark.parametrize(
    ("one", "two", "until"),
    [
        (constant(1), constant(1.0), 0),
        (constant(1), constant(True), 0),
        (linear(0, 1, 10), linear(0.0, 1.0, 10), math.inf),
    ],
)
def test_schedules_with_numbers_of_different_types_differ(one, two, until):
    assert one.agrees_until(two) == until


def test_agreement_is_sound_beyond_ten_thousand_pieces():
    wave = cyclic(0.0, 1.0, up=0.001, down=0.001)
    assert wave.agrees_until(piecewise([wave, 5.0], at=[20])) <= 20


@pytest.mark.parametrize(
    "make",
    [
        lambda: multistep(1e300, at=[1], gamma=1e300),  # inf from epoch 1 on
        lambda: multistep(1.0, at=[1, 2], gamma=1e300)(2),  # OverflowError
        lambda: multistep(2, at=list(range(1, 400)), gamma=10)(399),  # OverflowError
        lambda: linear(-1e308, 1e308, 1)(0.5),  # inf
        lambda: linear(0.0, 1.0, 5e-324)(0.0),  # nan
        lambda: linear(10**400, 1.0, 1),  # OverflowError
        lambda: exponential(1.0, 10.0)(400),  # OverflowError
        lambda: constant(0.1)(math.inf),  # accepted; for cyclic and cosine an endless loop
        lambda: piecewise(5, at=[1]),  # TypeError
    ],
)
def test_values_that_overflow_are_refused(make):
    with pytest.raises(ScheduleError):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: piecewise([0.1, [1]], at=[1]), "parts[1]: "),
        (lambda: warmup(0.0, 5, [1]), "into: "),
        (lambda: warmup(0.0, 5, math.nan), "into: "),
    ],
)
def test_the_message_names_the_field_of_the_function_that_was_called(make, message):
    with pytest.raises(ScheduleError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_an_unknown_kind_is_refused_when_read():
    with pytest.raises((ScheduleError, msgspec.ValidationError), match="nope"):
        msgspec.json.decode('{"kind":"nope","arguments":[]}', type=Schedule)


def test_a_nested_schedule_prints_as_it_is_written():
    assert "Schedule(" not in str(piecewise([constant(1.0), 2.0], at=[3]))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Workload(epochs=math.nan), "epochs"),  # simulate() then never ends
        (lambda: Workload(epochs=1.5), "epochs"),
        (lambda: Workload(partitions=2.0), "partitions"),
        (lambda: Workload(every=0.5), "every"),
        (lambda: Workload(configs=2.5), "configs"),
        (lambda: Workload(seconds="1"), "seconds"),
        (lambda: Workload(configs=[{1: 2, "a": 3}]), "configs[0]"),
        (lambda: Cluster(workers=2.5), "workers"),
        (lambda: Cluster(replicas=1.5), "replicas"),
        (lambda: Cluster(noise="x"), "noise"),
        (lambda: Crash("w0", 0.5, math.inf), "faults"),  # makespan is inf
        (lambda: simulate(Workload(), retries=math.nan), "retries"),
        (lambda: simulate(Workload(), policy=3), "policy"),
    ],
)
def test_numbers_of_the_wrong_kind_are_refused_by_field(make, field):
    with pytest.raises(WorkloadError, match="^" + field.replace("[", r"\[").replace("]", r"\]")):
        make()


def test_costs_are_computed_for_the_current_values():
    lr = warmup(0.0, 40, exponential(0.1, 1e-10))  # at(0.0) of its second piece is 1e399
    workload = Workload(configs=[{"lr": lr}], epochs=41, partitions=1, factors={"batch_size": {"32": 2.0}})
    assert simulate(workload, Cluster(workers=1)).makespan == 41.0


def test_a_worker_that_crashed_for_good_before_it_came_does_not_come():
    cluster = Cluster(workers=1, provisioning=5.0, faults=[Crash("w0", 1.0)])
    with pytest.raises(WorkloadError, match="^workers: none is left"):
        simulate(Workload(configs=1, partitions=1), cluster)


def test_a_worker_that_crashes_before_it_came_does_not_come_earlier():
    cluster = Cluster(workers=1, provisioning=5.0, faults=[Crash("w0", 1.0, 2.0)])
    assert simulate(Workload(configs=1, partitions=1), cluster).makespan == 6.0


def test_two_flaky_faults_are_both_used_or_refused():
    cluster = Cluster(workers=1, faults=[FlakyUnits(0.0), FlakyUnits(0.9)])
    result = simulate(Workload(configs=4, partitions=4), cluster, retries=0)
    assert result.to_dict()["failed_trials"] > 0


def test_a_trial_without_a_barrier_is_not_held_by_anothers():
    driver = Driver(1, ahead=False)
    driver.join("a")
    driver.join("b")
    driver.ask(0, 0.1, until=3, every=1, barrier=True, study="one")
    driver.ask(1, 0.2, until=3, every=1, barrier=True, study="one")
    driver.train("a")
    driver.evaluate("a")
    driver.ask(2, 0.1, until=3, study="two")
    assert driver.busy("a") is not None


def test_a_trial_that_is_called_complete_without_its_reports(monkeypatch):
    def grant(trials, trial, until):
        trial.until = until
        trials._close(trial, "complete", "")

    monkeypatch.setattr(Trials, "_grant", grant)
    driver = Driver(1)
    driver.join("a")
    with pytest.raises(InvariantError, match="^invariant 8"):
        driver.ask(0, 0.1, until=2)


def test_unrequested_reports_and_second_endings_break_an_invariant():
    driver = Driver(1)
    driver.join("a")
    driver.ask(0, 0.1)
    with pytest.raises(InvariantError, match="^invariant 8"):
        driver.checker.see(Step(TrialStopped(0), 1.0, True, [Report(0, 9, {}), EndTrial(0, "complete")]))


def test_work_for_a_draining_worker(monkeypatch):
    monkeypatch.setattr(Engine, "_worker_drained", lambda engine, event: None)
    driver = Driver(1)
    driver.join("a")
    driver.step(WorkerDrained("a"))
    with pytest.raises(InvariantError):
        driver.ask(0, 0.1)


def test_an_event_with_an_empty_config_is_refused_and_leaves_no_trace():
    driver = Driver(1)
    with pytest.raises(WorkloadError):
        driver.engine.step(__import__("hoptree.core.events", fromlist=["x"]).TrialAsked(0, (), 1), 0.0)
    assert driver.engine.live == 0


def test_another_branch_under_a_known_number_is_refused_like_another_trial():
    from hoptree.core.errors import ProtocolError

    driver = Driver(1)
    driver.ask(0, 0.1, until=4)
    driver.branch(1, 0, 2, 0.5, 3)
    with pytest.raises(ProtocolError):
        driver.branch(1, 0, 2, 0.7, 4)
