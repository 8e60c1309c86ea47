"""Actors of a real cluster train a unit together, on one node and across nodes that hold the partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters.conftest import Nodes
from tests.system.gang_nets import FLAG, layouts, study, widths
from tests.system.processes import units_done_twice


@pytest.mark.parametrize(
    ("count", "cpus", "replicas"),
    [pytest.param(2, 1, 2, id="two nodes"), pytest.param(1, 2, 1, id="one node", marks=pytest.mark.slow)],
)
def test_the_bits_do_not_depend_on_how_many_actors_train_a_unit(
    tmp_path: Path, nodes: Nodes, count: int, cpus: int, replicas: int
) -> None:
    alone = study(tmp_path / "alone", "mlp").run(workers=1)
    nodes.add(count, cpus)
    nodes.wait_for(count + 1)
    results = study(tmp_path / "ray", "mlp").run(backend=nodes.where(replicas=replicas))
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == alone.best.fingerprint
    assert 2 in widths(tmp_path / "ray")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["sharded", "pipeline"])
def test_actors_on_two_nodes_hold_parts_of_a_model(tmp_path: Path, nodes: Nodes, layout: str) -> None:
    alone = study(tmp_path / "alone", "sequence", epochs=1, slow=False).run(workers=1)
    nodes.add(2, 1)
    nodes.wait_for(3)
    divided = study(tmp_path / "ray", "sequence", epochs=1, slow=False, layout=layout)
    results = divided.run(backend=nodes.where(replicas=2))
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == alone.best.fingerprint
    assert set(layouts(tmp_path / "ray")) == {(layout, 2)}


def test_nodes_that_do_not_hold_the_partition_do_not_help(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(2)
    nodes.wait_for(3)
    results = study(tmp_path, "mlp").run(backend=nodes.where(replicas=1))
    assert [trial.state for trial in results.trials] == ["complete"]
    assert widths(tmp_path) == [1] * 6


@pytest.mark.slow
def test_idle_nodes_take_copies_and_then_help(tmp_path: Path, nodes: Nodes) -> None:
    alone = study(tmp_path / "alone", "mlp", epochs=5).run(workers=1)
    nodes.add(2)
    nodes.wait_for(3)
    chosen = study(tmp_path / "ray", "mlp", epochs=5)
    results = chosen.run(backend=nodes.where(copy=True), replicate_idle="1 MB")
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == alone.best.fingerprint
    assert widths(tmp_path / "ray").count(2) >= 2


@pytest.mark.slow
def test_copies_that_exceed_the_budget_are_not_taken(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(2)
    nodes.wait_for(3)
    results = study(tmp_path, "mlp").run(backend=nodes.where(), replicate_idle="1 KB")
    assert [trial.state for trial in results.trials] == ["complete"]
    assert widths(tmp_path) == [1] * 6


@pytest.mark.parametrize("kind", ["helper", pytest.param("leader", marks=pytest.mark.slow)])
def test_an_actor_of_a_gang_that_is_killed_costs_a_retry(tmp_path: Path, nodes: Nodes, kind: str) -> None:
    nodes.add(2, **{FLAG: str(tmp_path / "flag")})
    nodes.wait_for(3)
    (tmp_path / "flag").touch()
    whole = study(tmp_path / "whole", kind).run(backend=nodes.where(replicas=2))
    (tmp_path / "flag").unlink()
    results = study(tmp_path / "killed", kind).run(backend=nodes.where(replicas=2))
    assert (tmp_path / "flag").exists()
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == whole.best.fingerprint
    assert not units_done_twice(tmp_path / "killed" / "store", "gangs")


@pytest.mark.slow
def test_an_error_in_a_helping_actor_fails_the_trial_with_the_users_traceback(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(1, 2)
    nodes.wait_for(2)
    (trial,) = study(tmp_path, "raise").run(backend=nodes.where()).trials
    assert trial.state == "failed"
    assert "ValueError: only where it helps" in trial.error
