"""The graph of an execution: its tasks, its longest path, and the timeline that leaves it out."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.elastic.dag import ExecutionGraph, TaskKind, execution_graph
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage
from hoptree.elastic.samples import StageSampler
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import Terms, timeline
from tests.elastic.plans import random_case

INSTANCE = Instance("made-up", devices=1, price=3.6, provision=10.0, start=5.0)


def test_the_duration_is_the_longest_path() -> None:
    graph = ExecutionGraph()
    first = graph.add(TaskKind.SCALE, np.array([1.0, 2.0]), [])
    left = graph.add(TaskKind.TRAIN, np.array([5.0, 1.0]), [first])
    right = graph.add(TaskKind.TRAIN, 3.0, [first])
    graph.add(TaskKind.SYNC, 0.5, [left, right])
    assert graph.durations().tolist() == [6.5, 5.5]


def test_tasks_of_a_plan_are_those_of_figure_7() -> None:
    # Four trials on four new nodes, then two on the same, then one that waits for two more.
    job = Job(tuple(JobStage(count, 60.0) for count in (4, 2, 1)), {1: 1.0, 2: 1.5, 6: 2.0}, divisible=False)
    model = StageModel(job, INSTANCE)
    graph = execution_graph([4, 4, 6], model, Terms(INSTANCE, 0.0, ahead=False), StageSampler(model, seed=0))
    counted = {kind: graph.count(kind) for kind in TaskKind}
    assert counted == {TaskKind.SCALE: 2, TaskKind.INIT_INSTANCE: 6, TaskKind.TRAIN: 7, TaskKind.SYNC: 3}
    assert graph.durations() == pytest.approx(15 + 60 + 60 / 1.5 + 15 + 60 / 2.0)


def test_trials_that_wait_for_a_device_follow_one_another() -> None:
    model = StageModel(Job((JobStage(5, 10.0),), {}, divisible=False), INSTANCE)
    graph = execution_graph([2], model, Terms(INSTANCE, 0.0, ahead=False), StageSampler(model, seed=0))
    assert graph.durations() == pytest.approx(15 + 30)


@given(seed=st.integers(0, 1000), counts=st.tuples(*[st.integers(1, 6)] * 3), running=st.integers(0, 3))
def test_the_timeline_takes_as_long_as_the_graph(seed: int, counts: tuple[int, ...], running: int) -> None:

    job, instance = random_case(random.Random(seed), spread=0.3)
    model = StageModel(job, instance)
    terms = Terms(instance, job.data_gb, ahead=False)
    sampler = StageSampler(model, seed=seed, samples=8)
    line = timeline(counts, sampler.times(counts), model, terms, running=running, longer=np.maximum)
    graph = execution_graph(counts, model, terms, sampler, running=running)
    assert graph.durations() == pytest.approx(line.seconds)
