"""The settings match the paper."""

import statistics

import pytest

from hoptree.core.errors import WorkloadError
from hoptree.optimize import solve
from hoptree.optimize.settings import CNN_MFLOPS, GPU_TFLOPS, paper_setting


def test_costs_are_those_of_the_table():
    costs = CNN_MFLOPS.values()
    assert len(costs) == 35
    assert (min(costs), max(costs)) == (360, 21_000)
    assert statistics.mean(costs) == pytest.approx(5939, rel=1e-3)
    assert statistics.pstdev(costs) == pytest.approx(5671, rel=1e-3)


def test_a_heterogeneous_setting_is_drawn_from_the_tables():
    times = paper_setting(16, 8, heterogeneous=True, seed=3)
    quotients = {cost / capacity for cost in CNN_MFLOPS.values() for capacity in GPU_TFLOPS.values()}
    assert (len(times), len(times[0])) == (16, 8)
    assert {time for row in times for time in row} <= quotients
    assert times == paper_setting(16, 8, heterogeneous=True, seed=3)
    assert times != paper_setting(16, 8, heterogeneous=True, seed=4)


def test_an_empty_setting_is_refused():
    with pytest.raises(WorkloadError, match="workers: 0; expected at least 1"):
        paper_setting(1, 0, heterogeneous=True)


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize("workers", [8, 16])
@pytest.mark.parametrize("configs", [16, 256])
def test_cp_sat_proves_the_settings_of_the_paper(configs, workers, heterogeneous):
    assert solve(paper_setting(configs, workers, heterogeneous), seconds=20).proven
