"""A cluster that grows and shrinks: Ray's autoscaler is told what could be used, and workers leave in order."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.events import StateLost, WorkerDrained
from tests.clusters.conftest import token_required
from tests.clusters.test_ray import Patient, events, joined, prints
from tests.system.plain import dataset, study


@pytest.fixture
def scaling(tmp_path: Path) -> Iterator[str]:
    """Ray's own autoscaler, on nodes that are processes of this machine; there is none at first."""
    from ray._private.services import get_node_ip_address
    from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"{get_node_ip_address()}:{port}"
    node: dict[str, Any] = {"node_config": {}, "min_workers": 0}
    config = {
        "cluster_name": "scaling",
        "max_workers": 2,
        "idle_timeout_minutes": 0.03,
        "provider": {
            "type": "fake_multinode",
            "head_node_id": FAKE_HEAD_NODE_ID,
            "gcs_address": address,
            "use_node_id_as_ip": True,  # they all have the same address
            "disable_node_updaters": True,  # nodes here are processes: nobody logs in to set them up
            "disable_launch_config_check": True,
            "foreground_node_launch": True,
            "worker_liveness_check": False,
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
        "available_node_types": {
            "ray.head.default": {**node, "resources": {"CPU": 0}, "max_workers": 0},
            "worker": {**node, "resources": {"CPU": 1}, "max_workers": 2},
        },
    }
    (tmp_path / "scaling.json").write_text(json.dumps(config))
    ray = str(Path(sys.executable).parent / "ray")
    settings = [f"--autoscaling-config={tmp_path / 'scaling.json'}", "--num-cpus=0", f"--port={port}"]
    hidden = mkdtemp(prefix="ray-", dir="/tmp")  # else other programs would join it; sockets want short names
    around = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "RAY_TMPDIR": hidden}
    command = [ray, "start", "--head", "--block", "--include-dashboard=false", *settings]
    with token_required():
        head = subprocess.Popen(
            command, env={**os.environ, **around}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: is_open(address), "the cluster does not start")
        yield address
        head.terminate()
        head.wait()
    rmtree(hidden, ignore_errors=True)


def wait_for(what: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 900
    while not what():
        assert time.monotonic() < end, otherwise
        time.sleep(0.2)


def is_open(address: str) -> bool:
    from ray._raylet import GcsClient

    try:
        return bool(GcsClient(address=address).internal_kv_get(b"CLUSTER_METADATA", b"cluster"))
    except Exception:
        return False


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
