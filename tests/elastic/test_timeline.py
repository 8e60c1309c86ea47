"""The timeline of a plan: nodes come ahead or when they are needed, the oldest go first, and charges add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.elastic.billing import charge
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import StageTime, Terms, expected_timeline, timeline
from tests.elastic.plans import CASES

COUNTS = st.tuples(*[st.integers(1, 6)] * 3)
JOB = Job((JobStage(2, 100.0), JobStage(4, 100.0), JobStage(1, 100.0)), {1: 1.0}, sync=10.0)
INSTANCE = Instance("made-up", devices=1, price=3600.0, provision=20.0, start=5.0)


def test_nodes_come_ahead_of_the_stage_that_needs_them() -> None:
    model = StageModel(JOB, INSTANCE)
    line = expected_timeline([2, 4, 1], model, Terms(INSTANCE, 0.0, ahead=True))
    assert line.begins == (25, 135, 245)
    assert line.ends == (125, 235, 345)
    # The first two from their start to the end of the second stage, one more of the new, and one to the end.
    assert line.lives == ((2, 20, 245), (1, 130, 245), (1, 130, 345))
    assert line.cost == pytest.approx(2 * 225 + 115 + 215)


def test_otherwise_all_wait_for_them() -> None:
    model = StageModel(JOB, INSTANCE)
    line = expected_timeline([2, 4, 1], model, Terms(INSTANCE, 0.0, ahead=False))
    assert line.begins == (25, 160, 270)
    assert line.cost == pytest.approx(2 * 250 + 115 + 215)


def test_nodes_come_when_the_stage_before_was_expected_to_end() -> None:
    model = StageModel(JOB, INSTANCE)
    sampled = [StageTime(np.array([90.0, 120.0]), 0.0, 100.0), StageTime(100.0, 0.0), StageTime(100.0, 0.0)]
    line = timeline([2, 4, 1], sampled, model, Terms(INSTANCE, 0.0, ahead=True), longer=np.maximum)
    # They come at 135: a stage that ended at 115 waits for them, and they wait for one that ends at 145.
    assert line.begins[1].tolist() == [135, 155]
    assert line.cost.tolist() == [2 * 225 + 115 + 215, 2 * 245 + 135 + 235]


def test_nodes_that_run_train_while_others_come() -> None:
    model = StageModel(Job((JobStage(4, 100.0),), {1: 1.0}), INSTANCE)
    line = expected_timeline([4], model, Terms(INSTANCE, 0.0, ahead=True), running=2)
    # Two nodes train an eighth of the work in 25 seconds: the rest takes 87.5 on four.
    assert line.begins == (0.0,)
    assert line.ends == (112.5,)
    assert line.cost == pytest.approx(2 * 112.5 + 2 * 92.5)


def test_what_runs_but_is_not_needed_costs_its_idle_tail() -> None:
    instance = Instance("made-up", devices=1, price=3600.0, idle_tail=7.0)
    model = StageModel(Job((JobStage(1, 100.0),), {1: 1.0}), instance)
    line = expected_timeline([1], model, Terms(instance, 0.0, ahead=True), running=3)
    assert line.cost == pytest.approx(100 + 3 * 7)


@given(case=CASES, counts=COUNTS, ahead=st.booleans())
def test_the_cost_is_what_each_node_is_charged(
    case: tuple[Job, Instance], counts: tuple[int, ...], ahead: bool
) -> None:
    job, instance = case
    model = StageModel(job, instance)
    line = expected_timeline(counts, model, Terms(instance, job.data_gb, ahead=ahead))
    charged = sum(size * charge(instance, end - begin, data_gb=job.data_gb) for size, begin, end in line.lives)
    if instance.billing == "function":
        busy = sum(model.busy(index, count) for index, count in enumerate(counts))
        charged += charge(instance, 0.0, busy_device_seconds=busy)
    assert line.cost == pytest.approx(charged)


@given(case=CASES, counts=COUNTS, ahead=st.booleans(), running=st.integers(0, 4))
def test_samples_without_spread_are_the_expected_times(
    case: tuple[Job, Instance], counts: tuple[int, ...], ahead: bool, running: int
) -> None:
    job, instance = case
    model, terms = StageModel(job, instance), Terms(instance, job.data_gb, ahead=ahead)
    times = [
        StageTime(np.full(2, model.seconds(index, count)), model.busy(index, count), model.seconds(index, count))
        for index, count in enumerate(counts)
    ]
    sampled = timeline(counts, times, model, terms, running=running, longer=np.maximum)
    line = expected_timeline(counts, model, terms, running=running)
    assert sampled.seconds == pytest.approx(line.seconds)
    assert sampled.cost == pytest.approx(line.cost)
