"""Stage times: shared evenly, in rounds, or in gangs on whole nodes; never slower with more nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage
from hoptree.elastic.stage_model import Share, StageModel, expected_maximum
from tests.elastic.plans import CASES

INSTANCE = Instance("made-up", devices=4, price=1.0)
SPEED_UPS = {1: 1.0, 2: 1.9, 3: 2.5, 4: 3.4, 8: 5.0, 16: 4.0}


def model(trials: int, *, divisible: bool = True, spread: float = 0.0) -> StageModel:
    return StageModel(Job((JobStage(trials, 60.0, spread),), SPEED_UPS, divisible=divisible), INSTANCE)


def test_trials_of_a_divisible_job_share_the_devices() -> None:
    assert model(10).seconds(0, 2) == pytest.approx(75.0)
    assert model(5).seconds(0, 1) == pytest.approx(75.0)
    assert model(10, divisible=False).seconds(0, 2) == pytest.approx(120.0)


@pytest.mark.parametrize(
    ("trials", "nodes", "width"),
    [
        (4, 1, 1),
        (2, 1, 2),
        (3, 2, 2),  # a gang of three fits one node only once
        (3, 3, 4),
        (1, 1, 4),
        (1, 2, 8),
        (1, 9, 8),  # sixteen are slower than eight
        (3, 5, 4),
        (3, 6, 8),
    ],
)
def test_gangs_are_as_large_as_the_nodes_have_room_for(trials: int, nodes: int, width: int) -> None:
    assert model(trials).share(trials, nodes) == Share(width, SPEED_UPS[width], turns=False)


def test_a_gang_that_is_larger_than_a_node_has_whole_nodes() -> None:
    found = model(2)
    assert [found.nodes_for(2, width) for width in (1, 2, 3, 4, 6, 8)] == [1, 1, 2, 2, 4, 4]


def test_a_stage_waits_for_its_slowest_trial() -> None:
    assert model(4, spread=10.0).seconds(0, 1) == pytest.approx(60 + 10 * expected_maximum(4))
    assert expected_maximum(1) == 0.0
    assert expected_maximum(2) == pytest.approx(0.564, abs=0.03)
    assert expected_maximum(64) == pytest.approx(2.34, abs=0.05)


def test_busy_seconds_count_all_devices_of_a_gang() -> None:
    assert model(10).busy(0, 2) == pytest.approx(600.0)
    assert model(1).busy(0, 2) == pytest.approx(8 * 60.0 / 5.0)


@given(case=CASES, nodes=st.integers(1, 40))
def test_more_nodes_are_never_slower_and_steps_are_all_known(case: tuple[Job, Instance], nodes: int) -> None:
    found = StageModel(*case)
    for index in range(len(case[0].stages)):
        assert found.seconds(index, nodes + 1) <= found.seconds(index, nodes)
        if nodes + 1 < 32 and found.seconds(index, nodes + 1) < found.seconds(index, nodes):
            assert nodes + 1 in found.counts()


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (Job((), {}), "stages"),
        (Job((JobStage(0, 1.0),), {}), "trials"),
        (Job((JobStage(1, -1.0),), {}), "seconds"),
        (Job((JobStage(1, 1.0, float("nan")),), {}), "spread"),
        (Job((JobStage(1, 1.0),), {2: 0.0}), "speed_ups"),
    ],
)
def test_impossible_jobs_are_refused(job: Job, field: str) -> None:
    with pytest.raises(WorkloadError, match=field):
        StageModel(job, INSTANCE)
