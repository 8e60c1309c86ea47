"""A study larger than anybody's, simulated whole."""

import pytest

from hoptree import Cluster, Workload, simulate


@pytest.mark.slow
def test_ten_thousand_trials_on_a_thousand_workers() -> None:
    result = simulate(Workload(configs=10_000, epochs=20, partitions=16), Cluster(workers=1_000))
    assert result.units == 10_000 * 20 * 16
    assert all(trial.ending == "complete" for trial in result.engine.trials.values())
    assert result.makespan < 1.01 * result.bound
