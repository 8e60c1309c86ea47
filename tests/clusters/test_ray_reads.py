"""Workers on a Ray cluster tell what users' code reads, and refuse code that is not the driver's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import hoptree as ht
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.pool_options import PoolHooks
from hoptree.backends.rehearsals import RehearsalConfig, Rehearsals
from hoptree.identity.observation import Observations, present
from hoptree.store import FolderStates
from tests.clusters.conftest import Nodes
from tests.system.plain import dataset
from tests.system.test_agreement import study, write
from tests.testing.test_backends import NoLedger
from tests.worker.readers import Reads, fill


def test_the_driver_receives_what_an_actor_reads(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hoptree.backends.ray_pool import RayPool

    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    nodes.add(1)
    found: list[Observations] = []
    states = FolderStates(tmp_path / "states")
    pool = RayPool(nodes.where().asked(1), Reads(), dataset(tmp_path), states, "reads")
    configs = [RehearsalConfig({"lr": 0.1, "build": "json"})]
    backend = PoolBackend(
        pool,
        states,
        seed=0,
        ledger=NoLedger(),
        rehearsals=Rehearsals(configs, ["loss"]),
        hooks=PoolHooks(observed=found.append),
    )
    try:
        backend.start()
        assert found == [present([f"file:{tmp_path}/rates.json"])]
    finally:
        backend.stop(failed=False)


@pytest.mark.slow
def test_an_actor_that_loads_an_edited_module_is_refused(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write(tmp_path)
    nodes.add(1)
    try:
        trainer = importlib.import_module("edited_nets").Named()
        write(tmp_path, width=4)
        with pytest.raises(ht.RefusedError, match=r"node .*parts_of_nets.*another version"):
            study(tmp_path, trainer).run(backend=nodes.where(), quiet=True)
    finally:
        for name in ("edited_nets", "parts_of_nets"):
            sys.modules.pop(name, None)
