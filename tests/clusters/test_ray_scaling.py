"""A cluster that grows and shrinks: Ray's autoscaler is told what could be used, and workers leave in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.events import StateLost, WorkerDrained
from tests.clusters.scaling import autoscaling_cluster, wait_for
from tests.clusters.test_ray import Patient, events, joined, prints
from tests.system.plain import dataset, study


@pytest.fixture
def scaling() -> Iterator[str]:
    """Ray's own autoscaler, on nodes that are processes of this machine; there is none at first."""
    with autoscaling_cluster({"worker": {"resources": {"CPU": 1}}}, idle_seconds=1.8, most=2) as address:
        yield address


def uneven(folder: Path, **options: Any) -> ht.Study:
    """Four trials, of which one is trained for much longer than the others."""
    job = study(
        folder,
        data=dataset(folder, partitions=2),
        space={"lr": ht.choice(0.1, 0.2, 0.3)},
        search=ht.Grid(epochs=1),
        **options,
    )
    job.add({"lr": 0.4}, epochs=16)
    return job


@pytest.mark.slow
def test_nodes_come_when_there_is_work_and_go_when_there_is_not(tmp_path: Path, scaling: str) -> None:
    import ray

    (tmp_path / "l").mkdir()
    expected = prints(uneven(tmp_path / "l").run(workers=1))
    (tmp_path / "s").mkdir()
    where = ht.Ray(address=scaling, workers=2, autoscale=True)
    (tmp_path / "here").mkdir()
    patient = Patient(1.0, tmp_path / "here", workers=2, patience=300.0)  # the long trial waits for the second node
    results = uneven(tmp_path / "s", trainer=patient).run(backend=where)
    assert prints(results) == expected
    assert len({event.worker for event in joined(tmp_path / "s")}) >= 2
    seen = events(tmp_path / "s")
    assert [type(event) for event in seen].count(WorkerDrained) >= 1  # the long trial needs one worker only
    assert not [event for event in seen if isinstance(event, StateLost)]
    ray.init(address=scaling, log_to_driver=False, logging_level="ERROR")
    try:
        wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, "nodes are not given back")
    finally:
        ray.shutdown()
