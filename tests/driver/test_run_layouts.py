"""What a run tells its engine about gangs and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples.own_backend import InProcess

import hoptree as ht
from hoptree.core.replication import ReplicationSettings
from hoptree.driver.options import RunOptions
from hoptree.driver.run_layouts import RunLayouts
from hoptree.driver.study_group import StudyGroup
from hoptree.record.opening import last_snapshot
from hoptree.record.spec import StudySpec
from hoptree.store import StoreError
from tests.system.gang_nets import study


def replication(folder: Path, shards: int = 4, **options: Any) -> ReplicationSettings | None:
    chosen = study(folder, "mlp", shards=shards)
    group = StudyGroup([chosen])
    spec = StudySpec.together(group.specs)
    with chosen.open_store() as store:
        record, _ = last_snapshot(store, chosen.name, spec.settings)
        return RunLayouts(store, group, spec, RunOptions(**options), record).replication()


def test_idle_nodes_of_ray_take_copies_within_the_budget(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    found = replication(tmp_path, backend=ht.Ray(), replicate_idle="2 GB")
    files = study(tmp_path, "mlp").data.manifest.train
    assert found == ReplicationSettings(2e9, tuple(file.bytes for file in files))


def test_without_a_budget_there_are_no_copies(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert replication(tmp_path, backend="ray") is None
    assert replication(tmp_path, backend="ray", replicate_idle=0) is None


def test_workers_that_cannot_help_take_no_copies(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert replication(tmp_path, shards=1, backend="ray", replicate_idle="2 GB") is None


@pytest.mark.parametrize("backend", ["local", InProcess()])
def test_backends_whose_workers_hold_everything_are_asked_for_no_copies(tmp_path: Path, backend: Any) -> None:
    assert replication(tmp_path, backend=backend, replicate_idle="2 GB") is None


@pytest.mark.parametrize("size", ["much", "-1 GB", True, "2 XB"])
def test_a_budget_that_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises(StoreError, match="^replicate_idle: "):
        RunOptions(replicate_idle=size)
